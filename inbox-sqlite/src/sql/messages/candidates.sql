-- The second column: nothing is blocked where no order is kept.
SELECT sequence, 0
  FROM {messages}
 WHERE consumer = ?1 AND state = 'pending' AND due_at <= {now}
 ORDER BY due_at, sequence
 LIMIT ?2
