-- The messages of some ids, for people: no lock.
SELECT {columns}
FROM {table} FORCE INDEX (message_id)
WHERE consumer = {consumer} AND message_id IN ({ids})
ORDER BY sequence
-- Of its own, or the session's sql_select_limit would cut it.
LIMIT 18446744073709551615
