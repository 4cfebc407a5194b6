UPDATE {messages}
   SET due_at = {now} + ?2
 WHERE sequence = ?1
