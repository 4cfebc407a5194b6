-- Writes down a failed attempt, which was the last.
UPDATE {table} FORCE INDEX (PRIMARY)
SET history = {line}, lease_token = NULL, state = {dead}, state_since = {now}
WHERE sequence IN ({sequences}) AND (sequence, lease_token) IN ({leases})
  AND consumer = {consumer} AND state = {pending}
