-- Marks messages as done, as far as their leases still hold.
UPDATE {table} FORCE INDEX (PRIMARY)
SET state = {done}, lease_token = NULL, state_since = {now}
WHERE sequence IN ({sequences}) AND (sequence, lease_token) IN ({leases})
  AND consumer = {consumer} AND state = {pending}
