-- Locks the rows of some leases, as far as these still hold, and passes over what is locked.
SELECT sequence, lease_token
FROM {table} FORCE INDEX (PRIMARY)
WHERE sequence IN ({sequences}) AND (sequence, lease_token) IN ({leases})
  AND consumer = {consumer} AND state = {pending}
LIMIT 1000
FOR UPDATE SKIP LOCKED
