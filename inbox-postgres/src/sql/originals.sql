-- The originals of some ids, with the time in microseconds since 1970, or NULL if it is infinite.
--
-- $1 consumer, $2 message ids. A statement of its own: under READ COMMITTED its snapshot is younger
-- than the wait of the insert before it.
SELECT message_id,
       event_type::text COLLATE "C",
       fingerprint,
       CASE WHEN isfinite(registered_at) THEN
           (extract(epoch FROM registered_at) * 1000000)::bigint
       END
FROM {table}
WHERE consumer = $1 AND message_id = ANY ($2)
