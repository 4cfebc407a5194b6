-- Lets the first pending message of each key be looked at again. $1 consumer, $2 keys, $3 lock_timeout.
--
-- Waits for a claim that has the row locked, and undoes its postponing then.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $3, true)
), first AS MATERIALIZED (
    SELECT message.sequence
    FROM bound
    CROSS JOIN unnest($2::text[]) WITH ORDINALITY AS wanted (key, place)
    -- By the index of keys, as in claim_in_order.sql.
    CROSS JOIN LATERAL (
        SELECT ordering_key, state, sequence
        FROM {messages}
        WHERE consumer = $1 AND ordering_key IS NOT NULL AND state <> 'done'
          AND (ordering_key, state) >= (wanted.key COLLATE "C", 'pending')
        ORDER BY ordering_key, state, sequence
        LIMIT 1
    ) AS message
    WHERE message.ordering_key = wanted.key COLLATE "C" AND message.state = 'pending'
      AND wanted.place BETWEEN 1 AND cardinality($2)
), locked AS MATERIALIZED (
    -- By the primary key; see leases.sql.
    SELECT message.sequence
    FROM (SELECT sequence FROM first ORDER BY sequence) AS first
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE sequence = first.sequence AND lease_token IS NULL AND state || '' = 'pending'
        LIMIT 1
        FOR UPDATE
    ) AS message
)
UPDATE {messages} AS message
SET due_at = message.not_before
FROM locked
WHERE message.sequence = locked.sequence
