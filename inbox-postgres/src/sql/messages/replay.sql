, replayed AS (
    UPDATE {messages} AS message
    SET history     = message.history || '{"attempt":' || message.attempts || ',"at":'
                      || (extract(epoch FROM bound.now) * 1000000)::bigint || ',"kind":"replayed"}' || chr(10),
        state       = 'pending',
        state_since = bound.now,
        allowed     = message.attempts + 1,
        due_at      = bound.now,
        not_before  = bound.now
    FROM bound
    CROSS JOIN unnest(ARRAY(SELECT sequence FROM locked)) WITH ORDINALITY AS chosen (sequence, place)
    WHERE message.sequence = chosen.sequence AND chosen.place BETWEEN 1 AND (SELECT count(*) FROM locked)
    RETURNING 1
), counted AS MATERIALIZED (
    SELECT count(*) AS replayed FROM replayed
)
SELECT replayed, CASE WHEN $3::text IS NOT NULL AND replayed > 0 THEN pg_notify($3, $1) END
FROM counted
