-- What has spent its attempts dies instead. What bears a token here bears one whose lease has run out.
UPDATE {messages}
   SET history     = history || CASE WHEN lease_token IS NULL THEN ''
                     ELSE '{"attempt":' || attempts || ',"at":' || {now} || ',"kind":"abandoned"}' || char(10) END,
       state       = CASE WHEN attempts < coalesce(allowed, ?4) THEN state        ELSE 'dead' END,
       state_since = CASE WHEN attempts < coalesce(allowed, ?4) THEN state_since  ELSE {now}  END,
       lease_token = CASE WHEN attempts < coalesce(allowed, ?4) THEN ?2           ELSE NULL   END,
       due_at      = CASE WHEN attempts < coalesce(allowed, ?4) THEN {now} + ?3   ELSE due_at END,
       attempts    = attempts + (attempts < coalesce(allowed, ?4))
 WHERE sequence = ?1
RETURNING {columns}, payload
