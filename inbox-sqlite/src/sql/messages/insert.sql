-- ?9 is a time of the sender's, ?10 a delay from now.
INSERT INTO {messages}
       (consumer, message_id, event_type, fingerprint, payload, headers, content_type, ordering_key,
        state, due_at, not_before, attempts, history, received_at, state_since)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,
        'pending', coalesce(?9, {now} + ?10), coalesce(?9, {now} + ?10), 0, '', {now}, {now})
