-- Keeps messages in the order of the arrays, which is the order of their sequences.
--
-- $1 consumer, $2 ids, $3 event types, $4 fingerprints, $5 payloads, $6 headers, $7 content types,
-- $8 ordering keys, $9 times of the sender's in microseconds since 1970, $10 delays in microseconds,
-- $11 the channel to notify, or NULL.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), kept AS (
    INSERT INTO {messages} (consumer, message_id, event_type, fingerprint, payload, headers, content_type,
                            ordering_key, state, due_at, not_before, attempts, history, received_at, state_since)
    SELECT $1, message.id, message.event_type, message.fingerprint, message.payload, message.headers,
           message.content_type, message.ordering_key, 'pending', time.due, time.due, 0, '', clock.now, clock.now
    FROM clock
    CROSS JOIN unnest($2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::text[], $8::text[],
                      $9::bigint[], $10::bigint[]) WITH ORDINALITY
        AS message (id, event_type, fingerprint, payload, headers, content_type, ordering_key, at, after, place)
    CROSS JOIN LATERAL (
        SELECT coalesce(timestamptz 'epoch' + message.at * interval '1 microsecond',
                        clock.now + message.after * interval '1 microsecond') AS due
    ) AS time
    ORDER BY message.place
    RETURNING due_at
)
-- Once, and only if there is something to claim at once: a delayed message is found at its time.
SELECT CASE WHEN $11::text IS NOT NULL AND count(*) > 0 THEN pg_notify($11, $1) END
FROM kept
CROSS JOIN clock
WHERE kept.due_at <= clock.now
