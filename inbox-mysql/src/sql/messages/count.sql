-- How many messages are in a state, up to a limit, and how long the oldest has been in it.
SELECT {state},
       (SELECT count(*)
        FROM (SELECT 1
              FROM {table} FORCE INDEX (state_since)
              WHERE consumer = {consumer} AND state = {state}
              LIMIT {at_most}) AS counted),
       TIMESTAMPDIFF(MICROSECOND, (SELECT state_since
                                   FROM {table} FORCE INDEX (state_since)
                                   WHERE consumer = {consumer} AND state = {state}
                                   ORDER BY state_since
                                   LIMIT 1), {now})
LIMIT 1
