-- How many of these messages are done, by what is committed.
SELECT count(*)
FROM {table} FORCE INDEX (PRIMARY)
WHERE sequence IN ({sequences}) AND consumer = {consumer} AND state = {done}
LIMIT 1
