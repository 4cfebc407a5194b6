-- Leases what is due. $1 consumer, $2 limit, $3 token, $4 lease in microseconds, $5 the most attempts.
--
-- The clock is volatile, so only as a subquery can it bound the index scan. The candidates are locked
-- once, in a CTE of their own, and reach the update as an array: as a subquery to be joined, a plan could
-- scan and lock them again for each row, and take more than the limit.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), candidate AS MATERIALIZED (
    SELECT sequence, due_at
    FROM {messages}
    WHERE consumer = $1 AND state = 'pending' AND due_at <= (SELECT now FROM clock)
    ORDER BY due_at, sequence
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT array_agg(sequence ORDER BY due_at, sequence) AS sequences FROM candidate
), {take}
