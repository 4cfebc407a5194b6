-- The committed original of one id, for people: no lock.
SELECT message_id,
       event_type,
       fingerprint,
       attempt,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', registered_at)
FROM {table}
WHERE consumer = {consumer} AND message_id IN ({ids})
LIMIT 1
