SELECT 1
  FROM {table}
 WHERE consumer = ?1 AND message_id = ?2
