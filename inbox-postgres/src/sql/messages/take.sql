taken AS (
    -- What has spent its attempts dies instead. What bears a token bears one whose lease has run out.
    UPDATE {messages} AS message
    SET history = message.history || CASE WHEN message.lease_token IS NULL THEN '' ELSE
            '{"attempt":' || message.attempts || ',"at":'
            || (extract(epoch FROM clock.now) * 1000000)::bigint || ',"kind":"abandoned"}' || chr(10) END,
        state       = CASE WHEN message.attempts < coalesce(message.allowed, $5) THEN 'pending' ELSE 'dead' END,
        state_since = CASE WHEN message.attempts < coalesce(message.allowed, $5) THEN message.state_since ELSE clock.now END,
        lease_token = CASE WHEN message.attempts < coalesce(message.allowed, $5) THEN $3::bytea END,
        due_at      = CASE WHEN message.attempts < coalesce(message.allowed, $5)
                           THEN clock.now + $4 * interval '1 microsecond' ELSE message.due_at END,
        attempts    = message.attempts + CASE WHEN message.attempts < coalesce(message.allowed, $5) THEN 1 ELSE 0 END
    FROM clock
    CROSS JOIN unnest((SELECT sequences FROM chosen)) WITH ORDINALITY AS claimed (sequence, place)
    -- The range is for the planner; see leases.sql.
    WHERE message.sequence = claimed.sequence AND claimed.place BETWEEN 1 AND $2
    RETURNING {columns}, claimed.place
)
SELECT * FROM taken ORDER BY place
