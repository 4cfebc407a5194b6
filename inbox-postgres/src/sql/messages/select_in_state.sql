-- $1 consumer, $2 state, $3 event type or NULL, $4 the least age in the state in microseconds, or NULL,
-- $5 and $6 the place after which to begin, or NULL, $7 limit, $8 whether with payloads.
SELECT {columns}
FROM {messages} AS message
WHERE message.consumer = $1 AND message.state = $2
  AND ($3::text IS NULL OR message.event_type = $3)
  AND message.state_since <= coalesce((SELECT {now}) - $4::bigint * interval '1 microsecond', 'infinity')
  AND (message.state_since, message.sequence) >
      (coalesce(timestamptz 'epoch' + $5::bigint * interval '1 microsecond', '-infinity'), coalesce($6::bigint, 0))
ORDER BY message.state_since, message.sequence
LIMIT $7
