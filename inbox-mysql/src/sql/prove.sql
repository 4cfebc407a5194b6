-- Fails with 1690, out of range, unless every one of these registrations is in the transaction: another
-- one may have registered an id again that was undone here.
SELECT 18446744073709551615 + (count(*) <> {expected})
FROM {table} FORCE INDEX (PRIMARY)
WHERE consumer = {consumer} AND message_id IN ({ids})
  AND LEFT(attempt, 8) = CONCAT({owner})
-- Without a LIMIT of its own it would have the session's sql_select_limit, and be skipped under 0.
LIMIT 1
