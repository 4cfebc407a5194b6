-- Leases those of the locked messages that no earlier one of their key blocks, and postpones the others,
-- so that later claims do not read past them.
--
-- $1 consumer, $2 limit, $3 token, $4 lease in microseconds, $5 the most attempts, $6 the locked
-- sequences, $7 whether a dead message blocks.
--
-- A statement of its own, after the locks: its snapshot sees whatever was committed before, and an
-- unblock that comes later waits for the locks.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), candidate AS MATERIALIZED (
    SELECT locked.place, locked.sequence,
           EXISTS (SELECT FROM {messages} AS earlier
                   WHERE earlier.consumer = $1 AND earlier.ordering_key = message.ordering_key
                     AND earlier.state = 'pending' AND earlier.sequence < locked.sequence)
           OR $7 AND EXISTS (SELECT FROM {messages} AS earlier
                   WHERE earlier.consumer = $1 AND earlier.ordering_key = message.ordering_key
                     AND earlier.state = 'dead' AND earlier.sequence < locked.sequence) AS blocked
    FROM unnest($6::bigint[]) WITH ORDINALITY AS locked (sequence, place)
    CROSS JOIN LATERAL (
        SELECT ordering_key FROM {messages} AS message WHERE message.sequence = locked.sequence LIMIT 1
    ) AS message
), postponed AS (
    UPDATE {messages} AS message
    SET due_at = clock.now + $4 * interval '1 microsecond'
    FROM clock
    WHERE message.sequence = ANY (ARRAY(SELECT sequence FROM candidate WHERE blocked))
), chosen AS MATERIALIZED (
    SELECT array_agg(sequence ORDER BY place) AS sequences
    FROM (SELECT place, sequence FROM candidate WHERE NOT blocked ORDER BY place LIMIT $2) AS free
), {take}
