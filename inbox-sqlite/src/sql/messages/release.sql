UPDATE {messages}
   SET lease_token = NULL, attempts = attempts - 1, due_at = not_before
 WHERE sequence = ?2 AND consumer = ?1 AND lease_token = ?3
