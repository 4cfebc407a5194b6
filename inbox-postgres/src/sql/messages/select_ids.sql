-- $1 consumer, $2 ids.
SELECT {columns}
FROM {messages} AS message
WHERE message.consumer = $1 AND message.message_id = ANY ($2)
ORDER BY message.sequence
