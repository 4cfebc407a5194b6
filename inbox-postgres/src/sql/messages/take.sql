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
    WHERE message.sequence = ANY ((SELECT sequences FROM chosen)::bigint[])
    RETURNING {columns}, array_position((SELECT sequences FROM chosen), message.sequence) AS place
)
SELECT * FROM taken ORDER BY place
