-- OR IGNORE also swallows NOT NULL and CHECK violations, so 0 rows proves nothing (R8).
INSERT OR IGNORE INTO {table}
       (consumer, message_id, event_type, fingerprint, registered_at)
VALUES (?1,       ?2,         ?3,         ?4,          {now})
