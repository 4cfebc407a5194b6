-- Gives messages one attempt more, by their ids; of two replays at once the second finds them pending.
UPDATE {table} FORCE INDEX (message_id)
SET history = {line},
    state = {pending},
    allowed = attempts + 1,
    due_at = {now},
    not_before = {now},
    state_since = {now}
WHERE consumer = {consumer} AND message_id IN ({ids}) AND state IN ({done}, {dead})
