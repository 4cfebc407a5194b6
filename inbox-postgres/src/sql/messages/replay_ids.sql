-- $1 consumer, $2 lock_timeout, $3 the channel to notify, or NULL, $4 ids.
--
-- A replay that waits for another one looks at the state again, and passes over what is pending then.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $2, true), {now} AS now
), locked AS MATERIALIZED (
    SELECT message.sequence
    FROM {messages} AS message
    CROSS JOIN bound
    WHERE message.consumer = $1 AND message.message_id = ANY ($4) AND message.state IN ('done', 'dead')
    ORDER BY message.sequence
    FOR UPDATE OF message
){replay}
