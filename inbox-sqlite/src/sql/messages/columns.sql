sequence, message_id, event_type, fingerprint, headers, content_type, ordering_key, state,
       lease_token IS NOT NULL, due_at, attempts, allowed, history, received_at, state_since
