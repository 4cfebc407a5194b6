-- Renews leases, waiting for no row. $1 consumer, $2 sequences, $3 tokens, $4 lease in microseconds.
--
-- Answers by position: 0 renewed; 1 the committed row bears the token, but a transaction has it locked;
-- 2 the token is gone.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), {leases}, held AS MATERIALIZED (
    SELECT lease.place, message.sequence
    FROM lease
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE sequence = lease.sequence AND lease_token = lease.token AND consumer || '' = $1
        LIMIT 1
    ) AS message
), locked AS MATERIALIZED (
    SELECT message.sequence
    FROM lease
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE sequence = lease.sequence AND lease_token = lease.token AND consumer || '' = $1
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS message
), renewed AS (
    UPDATE {messages} AS message
    SET due_at = clock.now + $4 * interval '1 microsecond'
    FROM clock
    CROSS JOIN locked
    WHERE message.sequence = locked.sequence
    RETURNING message.sequence
)
SELECT CASE WHEN held.sequence IS NULL THEN 2
            WHEN held.sequence = ANY (ARRAY(SELECT sequence FROM renewed)) THEN 0
            ELSE 1 END
FROM lease
LEFT JOIN held ON held.place = lease.place
ORDER BY lease.place
