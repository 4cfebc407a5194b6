-- Gives messages one attempt more, by their state, those first that have been in it longest.
UPDATE {table} FORCE INDEX (state_since)
SET history = {line},
    state = {pending},
    allowed = attempts + 1,
    due_at = {now},
    not_before = {now},
    state_since = {now}
WHERE consumer = {consumer} AND state = {state}{further}
ORDER BY state_since, sequence
LIMIT {limit}
