-- Writes down that leases ran out.
UPDATE {table} FORCE INDEX (PRIMARY)
SET history = {line}
WHERE sequence IN ({sequences})
