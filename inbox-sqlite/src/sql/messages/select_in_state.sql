SELECT {columns}, CASE WHEN ?8 THEN payload ELSE x'' END
  FROM {messages}
 WHERE consumer = ?1 AND state = ?2
   AND (?3 IS NULL OR event_type = ?3)
   AND state_since <= coalesce({now} - ?4, 9223372036854775807)
   AND (state_since, sequence) > (?6, ?7)
 ORDER BY state_since, sequence
 LIMIT ?5
