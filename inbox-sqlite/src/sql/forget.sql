DELETE FROM {table}
 WHERE consumer = ?1 AND message_id = ?2
