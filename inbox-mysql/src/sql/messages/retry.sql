-- Writes down a failed attempt, after which there is another one.
UPDATE {table} FORCE INDEX (PRIMARY)
SET history = {line},
    lease_token = NULL,
    due_at = {now} + INTERVAL {delay} MICROSECOND,
    not_before = {now} + INTERVAL {delay} MICROSECOND
WHERE sequence IN ({sequences}) AND (sequence, lease_token) IN ({leases})
  AND consumer = {consumer} AND state = {pending}
