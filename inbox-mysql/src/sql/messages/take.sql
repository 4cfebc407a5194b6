-- Leases messages, and counts the attempt.
UPDATE {table} FORCE INDEX (PRIMARY)
SET lease_token = {token}, due_at = {until}, attempts = attempts + 1
WHERE sequence IN ({sequences})
