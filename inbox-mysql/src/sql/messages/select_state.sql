-- The messages in a state, those first that have been in it longest, for people: no lock.
SELECT {columns}
FROM {table} FORCE INDEX (state_since)
WHERE consumer = {consumer} AND state = {state}{further}
ORDER BY state_since, sequence
LIMIT {limit}
