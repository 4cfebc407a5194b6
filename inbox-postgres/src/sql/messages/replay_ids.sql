-- $1 consumer, $2 lock_timeout, $3 the channel to notify, or NULL, $4 ids.
--
-- A replay that waits for another one looks at the state again, and passes over what is pending then.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $2, true), {now} AS now
), {found}, locked AS MATERIALIZED (
    SELECT message.sequence
    FROM (SELECT one.sequence FROM bound CROSS JOIN one ORDER BY one.sequence) AS one
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE sequence = one.sequence AND state || '' IN ('done', 'dead')
        LIMIT 1
        FOR UPDATE
    ) AS message
){replay}
