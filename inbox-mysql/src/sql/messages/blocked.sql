-- Which of these messages have to wait for an earlier one of their key.
--
-- The first of a key is one step down an index, however many wait behind it. (EXISTS may be turned into a join
-- that reads all of them; and by the sequence alone MySQL sorts all of them, since it does not see that the
-- candidate's key is one value.)
SELECT candidate.sequence
FROM {table} AS candidate FORCE INDEX (PRIMARY)
WHERE candidate.sequence IN ({sequences})
  AND candidate.ordering_key IS NOT NULL
  AND ((SELECT earlier.sequence
        FROM {table} AS earlier FORCE INDEX (ordering_key)
        WHERE earlier.consumer = {consumer} AND earlier.ordering_key = candidate.ordering_key
          AND earlier.state = {pending}
        ORDER BY earlier.consumer, earlier.ordering_key, earlier.state, earlier.sequence
        LIMIT 1) < candidate.sequence
    OR {dead_block} AND
       (SELECT earlier.sequence
        FROM {table} AS earlier FORCE INDEX (ordering_key)
        WHERE earlier.consumer = {consumer} AND earlier.ordering_key = candidate.ordering_key
          AND earlier.state = {dead}
        ORDER BY earlier.consumer, earlier.ordering_key, earlier.state, earlier.sequence
        LIMIT 1) < candidate.sequence)
LIMIT 1000
