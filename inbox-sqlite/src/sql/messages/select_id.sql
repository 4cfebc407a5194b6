SELECT {columns}, payload
  FROM {messages}
 WHERE consumer = ?1 AND message_id = ?2
