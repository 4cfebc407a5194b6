-- Lets leases hold longer, whose rows this transaction has locked.
UPDATE {table} FORCE INDEX (PRIMARY)
SET due_at = {now} + INTERVAL {lease} MICROSECOND
WHERE sequence IN ({sequences})
