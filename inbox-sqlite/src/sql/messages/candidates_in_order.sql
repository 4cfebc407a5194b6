-- The second column: whether an earlier message of the key is pending, or in the state ?3.
SELECT candidate.sequence,
       candidate.ordering_key IS NOT NULL AND EXISTS (
           SELECT 1
             FROM {messages} AS earlier
            WHERE earlier.consumer = candidate.consumer
              AND earlier.ordering_key = candidate.ordering_key
              AND earlier.ordering_key IS NOT NULL AND earlier.state <> 'done'
              AND earlier.state IN ('pending', ?3)
              AND earlier.sequence < candidate.sequence)
  FROM {messages} AS candidate
 WHERE candidate.consumer = ?1 AND candidate.state = 'pending' AND candidate.due_at <= {now}
 ORDER BY candidate.due_at, candidate.sequence
 LIMIT ?2
