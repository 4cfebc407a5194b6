-- $1 consumer, $2 ids.
WITH {found}
SELECT {columns}
FROM one
JOIN {messages} AS message ON message.sequence = one.sequence
ORDER BY message.sequence
