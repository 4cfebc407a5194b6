-- How many of some messages are done, as committed. $1 consumer, $2 sequences.
SELECT count(*)
FROM {messages}
WHERE sequence = ANY ($2) AND consumer = $1 AND state = 'done'
