-- Lets messages be looked at when they are due by themselves. Waits for a claim that is postponing them.
UPDATE {table} FORCE INDEX (PRIMARY)
SET due_at = not_before
WHERE sequence IN ({sequences}) AND consumer = {consumer} AND state = {pending} AND lease_token IS NULL
