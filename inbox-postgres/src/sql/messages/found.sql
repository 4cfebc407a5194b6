found AS MATERIALIZED (
    -- The messages of some ids. Asked for by equality their order is worth nothing, and without statistics
    -- any index of the consumer's looks as good as that of the ids.
    SELECT array_agg(DISTINCT message.sequence) AS sequences
    FROM unnest({ids}::text[]) WITH ORDINALITY AS wanted (id, place)
    CROSS JOIN LATERAL (
        SELECT sequence
        FROM {messages}
        WHERE consumer = $1
          AND message_id >= wanted.id COLLATE "C" AND message_id <= wanted.id COLLATE "C"
        ORDER BY message_id
    ) AS message
    WHERE wanted.place BETWEEN 1 AND cardinality({ids})
), one AS MATERIALIZED (
    -- Each to be looked up by the primary key; see leases.sql.
    SELECT sequence
    FROM unnest((SELECT sequences FROM found)) WITH ORDINALITY AS one (sequence, place)
    WHERE place BETWEEN 1 AND (SELECT cardinality(sequences) FROM found)
)
