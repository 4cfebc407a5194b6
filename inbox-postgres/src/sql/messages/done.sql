-- How many of some messages are done, as committed. $1 consumer, $2 sequences. For the plan see leases.sql.
SELECT count(*)
FROM unnest($2::bigint[]) AS wanted (sequence)
CROSS JOIN LATERAL (
    SELECT
    FROM {messages}
    WHERE sequence = wanted.sequence AND consumer || '' = $1 AND state || '' = 'done'
    LIMIT 1
) AS message
