UPDATE {messages}
   SET due_at = not_before
 WHERE sequence = (SELECT sequence
                     FROM {messages}
                    WHERE consumer = ?1 AND ordering_key = ?2
                      AND ordering_key IS NOT NULL AND state <> 'done'
                      AND state = 'pending'
                    ORDER BY sequence
                    LIMIT 1)
   AND lease_token IS NULL
