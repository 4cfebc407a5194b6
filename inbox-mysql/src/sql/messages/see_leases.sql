-- Which leases hold, by what is committed.
SELECT sequence, lease_token
FROM {table} FORCE INDEX (PRIMARY)
WHERE sequence IN ({sequences}) AND (sequence, lease_token) IN ({leases})
  AND consumer = {consumer} AND state = {pending}
LIMIT 1000
