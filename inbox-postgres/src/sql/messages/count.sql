-- One statement, so that a message is seen in one state only. $1 consumer, $2 how far to count.
--
-- The order is for the planner: without it a scan of the table looks cheap to it for a few rows of a state,
-- however many of other states lie before them.
WITH states (place, state) AS (VALUES (0, 'pending'), (1, 'done'), (2, 'dead'))
SELECT (SELECT count(*)
        FROM (SELECT FROM {messages} AS message
              WHERE message.consumer = $1 AND message.state = states.state COLLATE "C"
              ORDER BY message.state_since
              LIMIT $2) AS counted),
       (SELECT (extract(epoch FROM {now} - message.state_since) * 1000000)::bigint
        FROM {messages} AS message
        WHERE message.consumer = $1 AND message.state = states.state COLLATE "C"
        ORDER BY message.state_since
        LIMIT 1)
FROM states
ORDER BY place
