-- Gives messages back; the attempt does not count.
UPDATE {table} FORCE INDEX (PRIMARY)
SET lease_token = NULL, attempts = attempts - 1, due_at = not_before
WHERE sequence IN ({sequences}) AND (sequence, lease_token) IN ({leases})
  AND consumer = {consumer} AND state = {pending}
