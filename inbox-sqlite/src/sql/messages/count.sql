-- One statement, so that a message is seen in one state only.
WITH states (place, state) AS (VALUES (0, 'pending'), (1, 'done'), (2, 'dead'))
SELECT (SELECT count(*)
          FROM (SELECT 1
                  FROM {messages} AS message
                 WHERE message.consumer = ?1 AND message.state = states.state
                 LIMIT ?2)),
       (SELECT {now} - message.state_since
          FROM {messages} AS message
         WHERE message.consumer = ?1 AND message.state = states.state
         ORDER BY message.state_since
         LIMIT 1)
  FROM states
 ORDER BY place
