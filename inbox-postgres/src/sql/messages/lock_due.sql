-- Locks what is due, to be looked at by the next statement. $1 consumer, $2 how many.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
)
SELECT sequence
FROM {messages}
WHERE consumer = $1 AND state = 'pending' AND due_at <= (SELECT now FROM clock)
ORDER BY due_at, sequence
LIMIT $2
FOR UPDATE SKIP LOCKED
