-- Renews leases, waiting for no row. $1 consumer, $2 sequences, $3 tokens, $4 lease in microseconds.
--
-- Answers by position: 0 renewed; 1 the committed row bears the token, but a transaction has it locked;
-- 2 the token is gone.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), lease AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS lease (sequence, token, place)
), held AS MATERIALIZED (
    SELECT lease.place, message.sequence
    FROM lease
    JOIN {messages} AS message
      ON message.sequence = lease.sequence AND message.lease_token = lease.token AND message.consumer = $1
), locked AS MATERIALIZED (
    SELECT message.sequence
    FROM {messages} AS message
    JOIN lease ON message.sequence = lease.sequence AND message.lease_token = lease.token
    WHERE message.sequence = ANY ($2) AND message.consumer = $1
    FOR UPDATE OF message SKIP LOCKED
), renewed AS (
    UPDATE {messages} AS message
    SET due_at = clock.now + $4 * interval '1 microsecond'
    FROM clock
    WHERE message.sequence = ANY (ARRAY(SELECT sequence FROM locked))
    RETURNING message.sequence
)
SELECT CASE WHEN held.sequence IS NULL THEN 2
            WHEN held.sequence = ANY (ARRAY(SELECT sequence FROM renewed)) THEN 0
            ELSE 1 END
FROM lease
LEFT JOIN held ON held.place = lease.place
ORDER BY lease.place
