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
           coalesce(pending.ordering_key = message.ordering_key AND pending.state = 'pending'
                    AND pending.sequence < locked.sequence, false)
           OR $7 AND coalesce(dead.ordering_key = message.ordering_key AND dead.state = 'dead'
                    AND dead.sequence < locked.sequence, false) AS blocked
    FROM unnest($6::bigint[]) WITH ORDINALITY AS locked (sequence, place)
    CROSS JOIN LATERAL (
        SELECT ordering_key FROM {messages} AS message WHERE message.sequence = locked.sequence LIMIT 1
    ) AS message
    -- The first of the key in each state, looked up by the index of keys. Asked for by equality, its order
    -- would be the sequence's alone, and a plan by the primary key reads all that is older.
    LEFT JOIN LATERAL (
        SELECT ordering_key, state, sequence
        FROM {messages}
        WHERE consumer = $1 AND ordering_key IS NOT NULL AND state <> 'done'
          AND (ordering_key, state) >= (message.ordering_key, 'pending')
        ORDER BY ordering_key, state, sequence
        LIMIT 1
    ) AS pending ON true
    LEFT JOIN LATERAL (
        SELECT ordering_key, state, sequence
        FROM {messages}
        WHERE $7 AND consumer = $1 AND ordering_key IS NOT NULL AND state <> 'done'
          AND (ordering_key, state) >= (message.ordering_key, 'dead')
        ORDER BY ordering_key, state, sequence
        LIMIT 1
    ) AS dead ON true
), postponed AS (
    UPDATE {messages} AS message
    SET due_at = clock.now + $4 * interval '1 microsecond'
    FROM clock
    CROSS JOIN unnest(ARRAY(SELECT sequence FROM candidate WHERE blocked)) WITH ORDINALITY AS waiting (sequence, place)
    WHERE message.sequence = waiting.sequence AND waiting.place BETWEEN 1 AND cardinality($6)
), chosen AS MATERIALIZED (
    SELECT array_agg(sequence ORDER BY place) AS sequences
    FROM (SELECT place, sequence FROM candidate WHERE NOT blocked ORDER BY place LIMIT $2) AS free
), {take}
