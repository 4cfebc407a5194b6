-- Lets claims look at messages that have to wait for others only later, so that they do not read past them.
UPDATE {table} FORCE INDEX (PRIMARY)
SET due_at = {until}
WHERE sequence IN ({sequences})
