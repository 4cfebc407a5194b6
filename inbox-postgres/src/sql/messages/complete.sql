-- Marks messages as done in the caller's transaction, where their leases still hold.
--
-- $1 consumer, $2 sequences, $3 tokens, $4 lock_timeout for the wait, $5 the guard's setting.
-- The rows are locked in the order of their sequences. lock_timeout is saved and restored as for registering.
WITH before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS lock_timeout
), bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $4, true), {now} AS now FROM before
), locked AS MATERIALIZED (
    SELECT message.sequence
    FROM bound
    CROSS JOIN unnest($2::bigint[], $3::bytea[]) AS lease (sequence, token)
    JOIN {messages} AS message ON message.sequence = lease.sequence AND message.lease_token = lease.token
    WHERE message.sequence = ANY ($2) AND message.consumer = $1 AND message.state = 'pending'
    ORDER BY message.sequence
    FOR UPDATE OF message
), completed AS (
    UPDATE {messages} AS message
    SET state = 'done', lease_token = NULL, state_since = bound.now
    FROM bound
    WHERE message.sequence = ANY (ARRAY(SELECT sequence FROM locked))
    RETURNING message.sequence
), counted AS MATERIALIZED (
    SELECT count(*) AS completed, coalesce(array_agg(sequence), '{}') AS sequences FROM completed
)
SELECT counted.sequences,
       set_config('lock_timeout', before.lock_timeout, true),
       CASE WHEN counted.completed > 0 THEN
           set_config($5, (coalesce(nullif(current_setting($5, true), ''), '0')::bigint + counted.completed)::text, true)
       END
FROM before
CROSS JOIN counted
