-- Fails with 1690, out of range, unless every one of these messages is done: a savepoint may have undone that.
SELECT 18446744073709551615 + (count(*) <> {expected})
FROM {table} FORCE INDEX (PRIMARY)
WHERE sequence IN ({sequences}) AND state = {done}
-- Without a LIMIT of its own it would have the session's sql_select_limit, and be skipped under 0.
LIMIT 1
