-- $1 consumer, $2 sequences, $3 tokens, $4 lock_timeout.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $4, true)
), {leases}, locked AS MATERIALIZED (
    SELECT message.sequence
    FROM (SELECT lease.* FROM bound CROSS JOIN lease ORDER BY lease.sequence) AS lease
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE sequence = lease.sequence AND lease_token = lease.token AND consumer || '' = $1
        LIMIT 1
        FOR UPDATE
    ) AS message
)
UPDATE {messages} AS message
SET lease_token = NULL, attempts = message.attempts - 1, due_at = message.not_before
FROM locked
WHERE message.sequence = locked.sequence
