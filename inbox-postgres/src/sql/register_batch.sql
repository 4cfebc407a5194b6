-- Registers many ids, given sorted and without repeats, whatever their number: three arrays.
--
-- $1 consumer, $2 message ids, $3 event types, $4 fingerprints, $5 the longest wait of the whole
-- statement in milliseconds, $6 the guard's setting, or NULL outside a guard.
--
-- The rows are inserted in the arrays' order, one by one, and lock_timeout is set anew just before
-- each to what is left until the deadline: it is a limit for each wait, the promise is one for all.
WITH before AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS lock_timeout,
           clock_timestamp() + $5 * interval '1 millisecond' AS deadline
), registered AS (
    INSERT INTO {table} (consumer, message_id, event_type, fingerprint)
    SELECT $1, message.id, message.event_type, message.fingerprint
    FROM before
    CROSS JOIN unnest($2::text[], $3::text[], $4::bytea[]) AS message (id, event_type, fingerprint)
    WHERE set_config(
        'lock_timeout',
        greatest(1, ceil(extract(epoch FROM before.deadline - clock_timestamp()) * 1000))::int::text,
        -- Always true; reading the message is what makes the planner set it for each row.
        message.id IS NOT NULL
    ) IS NOT NULL
    ON CONFLICT (consumer, message_id) DO NOTHING
    RETURNING message_id
), counted AS MATERIALIZED (
    SELECT count(*) AS new, coalesce(array_agg(message_id), '{}') AS ids FROM registered
)
SELECT counted.ids,
       set_config('lock_timeout', before.lock_timeout, true),
       CASE WHEN $6 IS NOT NULL AND counted.new > 0 THEN
           set_config($6, (coalesce(nullif(current_setting($6, true), ''), '0')::bigint + counted.new)::text, true)
       END
FROM before
CROSS JOIN counted
