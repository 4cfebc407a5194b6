-- The originals of some ids, with the time in microseconds since 1970.
--
-- A locking read sees what the insert met, where a plain one would look into an older snapshot. The
-- rows are locked already by the insert's check for duplicates. Not UNIX_TIMESTAMP, which depends on
-- the session's time zone. The index is forced, since a scan of the table would lock all of it.
SELECT message_id,
       event_type,
       fingerprint,
       attempt,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', registered_at)
FROM {table} FORCE INDEX (PRIMARY)
WHERE consumer = {consumer} AND message_id IN ({ids})
-- Of its own, or the session's sql_select_limit would cut it.
LIMIT 1000
LOCK IN SHARE MODE
