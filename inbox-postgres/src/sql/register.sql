-- Registers one id: one statement and one round trip, for a new id and, as a rule, for a duplicate.
--
-- $1 consumer, $2 message id, $3 event type, $4 fingerprint, $5 lock_timeout for the wait,
-- $6 the guard's setting, or NULL outside a guard.
--
-- CTEs run when they are read, and each reads the one before it: the caller's lock_timeout is saved,
-- set for this insert, and restored by the final SELECT. After an error the server restores it.
WITH before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS lock_timeout
), bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $5, true) FROM before
), registered AS (
    INSERT INTO {table} (consumer, message_id, event_type, fingerprint)
    SELECT $1, $2, $3, $4 FROM bound
    ON CONFLICT (consumer, message_id) DO NOTHING
    RETURNING 1
), counted AS MATERIALIZED (
    SELECT count(*) AS new FROM registered
)
SELECT counted.new,
       original.event_type,
       original.fingerprint,
       original.registered_at,
       set_config('lock_timeout', before.lock_timeout, true),
       -- A setting that is local to the transaction lives and dies with it and its savepoints.
       CASE WHEN $6 IS NOT NULL AND counted.new > 0 THEN
           set_config($6, (coalesce(nullif(current_setting($6, true), ''), '0')::bigint + counted.new)::text, true)
       END
FROM before
CROSS JOIN counted
-- This statement's snapshot is older than its wait: a row that is seen proves the duplicate, a row
-- that is not seen proves nothing, and the statement is run again. LIMIT keeps the subquery whole,
-- so that a new id never looks. The cast keeps a prepared statement good where the type
-- or collation of event_type changes.
LEFT JOIN LATERAL (
    SELECT event_type::text COLLATE "C",
           fingerprint,
           CASE WHEN isfinite(registered_at) THEN
               (extract(epoch FROM registered_at) * 1000000)::bigint
           END AS registered_at
    FROM {table}
    WHERE counted.new = 0 AND consumer = $1 AND message_id = $2
    LIMIT 1
) AS original ON true
