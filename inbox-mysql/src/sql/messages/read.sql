-- Whole messages.
SELECT {columns}
FROM {table} FORCE INDEX (PRIMARY)
WHERE sequence IN ({sequences})
LIMIT 1000
