-- Without a delay ?5 the message is dead.
UPDATE {messages}
   SET history     = history || '{"attempt":' || attempts || ',"at":' || {now} || ',"kind":"failed","error":' || ?4
                     || '}' || char(10),
       lease_token = NULL,
       state       = CASE WHEN ?5 IS NULL THEN 'dead' ELSE state END,
       state_since = CASE WHEN ?5 IS NULL THEN {now}  ELSE state_since END,
       due_at      = coalesce({now} + ?5, due_at),
       not_before  = coalesce({now} + ?5, not_before)
 WHERE sequence = ?2 AND consumer = ?1 AND lease_token = ?3
