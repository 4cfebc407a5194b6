-- The first pending message of a key, unless it is leased. Without a lock: the handler that has it would
-- hold that for as long as it runs.
(SELECT sequence, lease_token IS NULL
 FROM {table} FORCE INDEX (ordering_key)
 WHERE consumer = {consumer} AND ordering_key = {key} AND state = {pending}
 ORDER BY sequence
 LIMIT 1)
