-- Marks messages as done in the caller's transaction, where their leases still hold.
--
-- $1 consumer, $2 sequences, $3 tokens, $4 lock_timeout for the wait, $5 the guard's setting.
-- The rows are locked in the order of their sequences, once it is bound how long that waits. lock_timeout
-- is saved and restored as for registering.
WITH before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS lock_timeout
), bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $4, true), {now} AS now FROM before
), {leases}, locked AS MATERIALIZED (
    SELECT message.sequence
    FROM (SELECT lease.* FROM bound CROSS JOIN lease ORDER BY lease.sequence) AS lease
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE sequence = lease.sequence AND lease_token = lease.token
          AND consumer || '' = $1 AND state || '' = 'pending'
        LIMIT 1
        FOR UPDATE
    ) AS message
), completed AS (
    UPDATE {messages} AS message
    SET state = 'done', lease_token = NULL, state_since = bound.now
    FROM bound
    CROSS JOIN locked
    WHERE message.sequence = locked.sequence
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
