lease AS MATERIALIZED (
    -- Rows are looked up by the primary key with any statistics or none, since a plan may be older than the
    -- messages: each in a subquery of its own, with LIMIT 1, so that it is planned for one row, and what
    -- leads another index compared as an expression, by || '', so that none but the key is of use. It is
    -- locked only where all of it holds.
    --
    -- An UPDATE can have no such subquery, but rows to join. The range is for the planner, which takes one
    -- of what it knows nothing about to leave a single row.
    SELECT *
    FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS lease (sequence, token, place)
    WHERE place BETWEEN 1 AND cardinality($2)
)
