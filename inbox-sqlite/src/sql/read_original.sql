SELECT event_type, fingerprint, registered_at
  FROM {table}
 WHERE consumer = ?1 AND message_id = ?2
