-- Keeps messages as pending. Without IGNORE: a value that does not fit is an error, and the columns are as wide
-- as all that is checked before, so nothing is cut where strict mode is off.
INSERT INTO {table} (consumer, message_id, event_type, fingerprint, payload, headers, content_type, ordering_key,
                     state, due_at, not_before, attempts, history, received_at, state_since)
VALUES {rows}
