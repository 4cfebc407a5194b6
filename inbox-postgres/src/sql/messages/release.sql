-- $1 consumer, $2 sequences, $3 tokens, $4 lock_timeout.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $4, true)
), locked AS MATERIALIZED (
    SELECT message.sequence
    FROM bound
    CROSS JOIN unnest($2::bigint[], $3::bytea[]) AS lease (sequence, token)
    JOIN {messages} AS message ON message.sequence = lease.sequence AND message.lease_token = lease.token
    WHERE message.sequence = ANY ($2) AND message.consumer = $1
    ORDER BY message.sequence
    FOR UPDATE OF message
)
UPDATE {messages} AS message
SET lease_token = NULL, attempts = message.attempts - 1, due_at = message.not_before
WHERE message.sequence = ANY (ARRAY(SELECT sequence FROM locked))
