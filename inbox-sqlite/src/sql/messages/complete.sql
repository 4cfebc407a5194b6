UPDATE {messages}
   SET state = 'done', lease_token = NULL, state_since = {now}
 WHERE sequence = ?2 AND consumer = ?1 AND lease_token = ?3 AND state = 'pending'
