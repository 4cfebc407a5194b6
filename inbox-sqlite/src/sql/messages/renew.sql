UPDATE {messages}
   SET due_at = {now} + ?4
 WHERE sequence = ?2 AND consumer = ?1 AND lease_token = ?3
