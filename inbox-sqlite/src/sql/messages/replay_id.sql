UPDATE {messages}
   SET history     = history || '{"attempt":' || attempts || ',"at":' || {now} || ',"kind":"replayed"}' || char(10),
       state       = 'pending',
       state_since = {now},
       allowed     = attempts + 1,
       due_at      = {now},
       not_before  = {now}
 WHERE consumer = ?1 AND message_id = ?2 AND state IN ('done', 'dead')
