-- The marker in the comment stays in sqlite_schema, so the version needs no table of its own.
-- The payload is last, so that no other column has to be looked for behind it.
CREATE TABLE IF NOT EXISTS {messages} ( /* inbox messages schema 1 */
    sequence     INTEGER PRIMARY KEY,
    consumer     TEXT    NOT NULL,
    message_id   TEXT    NOT NULL,
    event_type   TEXT    NOT NULL,
    fingerprint  BLOB,
    headers      TEXT    NOT NULL,
    content_type TEXT,
    ordering_key TEXT,
    state        TEXT    NOT NULL CHECK (state IN ('pending', 'done', 'dead')),
    lease_token  BLOB             CHECK (lease_token IS NULL OR state = 'pending'),
    due_at       INTEGER NOT NULL,
    not_before   INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    allowed      INTEGER,
    history      TEXT    NOT NULL,
    received_at  INTEGER NOT NULL,
    state_since  INTEGER NOT NULL,
    payload      BLOB    NOT NULL
) STRICT;

-- Every index ends with the sequence, which is the rowid.
CREATE INDEX IF NOT EXISTS "{schema}"."{name}_claim" ON "{name}" (consumer, due_at)
 WHERE state = 'pending';

CREATE INDEX IF NOT EXISTS "{schema}"."{name}_state" ON "{name}" (consumer, state, state_since);

CREATE INDEX IF NOT EXISTS "{schema}"."{name}_id" ON "{name}" (consumer, message_id);

CREATE INDEX IF NOT EXISTS "{schema}"."{name}_key" ON "{name}" (consumer, ordering_key, state)
 WHERE ordering_key IS NOT NULL AND state <> 'done';
