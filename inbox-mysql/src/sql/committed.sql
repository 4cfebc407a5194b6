-- How many of these registrations, as this session made them, are committed.
SELECT count(*)
FROM {table} FORCE INDEX (PRIMARY)
WHERE consumer = {consumer} AND message_id IN ({ids})
  AND LEFT(attempt, 8) = CONCAT({owner})
LIMIT 1
