UPDATE {messages}
   SET history     = history || '{"attempt":' || attempts || ',"at":' || {now} || ',"kind":"replayed"}' || char(10),
       state       = 'pending',
       state_since = {now},
       allowed     = attempts + 1,
       due_at      = {now},
       not_before  = {now}
 WHERE state IN ('done', 'dead')
   AND sequence IN (SELECT sequence
                      FROM {messages}
                     WHERE consumer = ?1 AND state = ?2
                       AND (?3 IS NULL OR event_type = ?3)
                       AND state_since <= coalesce({now} - ?4, 9223372036854775807)
                     ORDER BY state_since, sequence
                     LIMIT ?5)
