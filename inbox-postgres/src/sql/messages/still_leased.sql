-- How many of the leases their rows bear, as committed. $1 consumer, $2 sequences, $3 tokens.
SELECT count(*)
FROM unnest($2::bigint[], $3::bytea[]) AS lease (sequence, token)
JOIN {messages} AS message ON message.sequence = lease.sequence AND message.lease_token = lease.token
WHERE message.sequence = ANY ($2) AND message.consumer = $1
