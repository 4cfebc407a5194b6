-- How many of these registrations are committed.
SELECT count(*)
FROM {table} FORCE INDEX (PRIMARY)
WHERE consumer = {consumer} AND message_id IN ({ids})
