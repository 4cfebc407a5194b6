-- $1 consumer, $2 sequence, $3 token, $4 lock_timeout, $5 the error as a JSON string, $6 the delay in
-- microseconds; without one the message is dead. For the plan see leases.sql.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $4, true), {now} AS now
)
UPDATE {messages} AS message
SET history     = message.history || '{"attempt":' || message.attempts || ',"at":'
                  || (extract(epoch FROM bound.now) * 1000000)::bigint || ',"kind":"failed","error":' || $5::text || '}' || chr(10),
    lease_token = NULL,
    state       = CASE WHEN $6::bigint IS NULL THEN 'dead' ELSE message.state END,
    state_since = CASE WHEN $6::bigint IS NULL THEN bound.now ELSE message.state_since END,
    due_at      = coalesce(bound.now + $6 * interval '1 microsecond', message.due_at),
    not_before  = coalesce(bound.now + $6 * interval '1 microsecond', message.not_before)
FROM bound
WHERE message.sequence = $2 AND message.consumer || '' = $1 AND message.lease_token = $3
