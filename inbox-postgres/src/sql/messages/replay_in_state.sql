-- $1 consumer, $2 lock_timeout, $3 the channel to notify, or NULL, $4 state, $5 event type or NULL,
-- $6 the least age in the state in microseconds, or NULL, $7 limit.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $2, true), {now} AS now
), locked AS MATERIALIZED (
    SELECT message.sequence
    FROM bound
    CROSS JOIN {messages} AS message
    WHERE message.consumer = $1 AND message.state = $4 AND message.state IN ('done', 'dead')
      AND ($5::text IS NULL OR message.event_type = $5)
      AND message.state_since <= coalesce((SELECT now FROM bound) - $6::bigint * interval '1 microsecond', 'infinity')
    ORDER BY message.state_since, message.sequence
    LIMIT $7
    FOR UPDATE OF message
){replay}
