-- Lets the first pending message of each key be looked at again. $1 consumer, $2 keys, $3 lock_timeout.
--
-- Waits for a claim that has the row locked, and undoes its postponing then.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $3, true)
), first AS MATERIALIZED (
    SELECT message.sequence
    FROM bound
    CROSS JOIN unnest($2::text[]) AS wanted (key)
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE consumer = $1 AND ordering_key = wanted.key COLLATE "C" AND state = 'pending'
        ORDER BY sequence
        LIMIT 1
    ) AS message
), locked AS MATERIALIZED (
    SELECT sequence
    FROM {messages}
    WHERE sequence = ANY (ARRAY(SELECT sequence FROM first)) AND lease_token IS NULL AND state = 'pending'
    ORDER BY sequence
    FOR UPDATE
)
UPDATE {messages}
SET due_at = not_before
WHERE sequence = ANY (ARRAY(SELECT sequence FROM locked))
