SELECT 1
  FROM {messages}
 WHERE sequence = ?2 AND consumer = ?1 AND lease_token = ?3
