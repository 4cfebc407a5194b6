-- No unique key on (consumer, message_id): the registration in the same transaction decides.
CREATE TABLE IF NOT EXISTS {messages} (
    sequence     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer     text        COLLATE "C" NOT NULL,
    message_id   text        COLLATE "C" NOT NULL,
    event_type   text        COLLATE "C" NOT NULL,
    fingerprint  bytea,
    payload      bytea       NOT NULL,
    headers      text        NOT NULL,
    content_type text        COLLATE "C",
    ordering_key text        COLLATE "C",
    state        text        COLLATE "C" NOT NULL CHECK (state IN ('pending', 'done', 'dead')),
    lease_token  bytea       CHECK (lease_token IS NULL OR state = 'pending'),
    due_at       timestamptz NOT NULL,
    not_before   timestamptz NOT NULL,
    attempts     integer     NOT NULL DEFAULT 0,
    allowed      integer,
    history      text        NOT NULL DEFAULT '',
    received_at  timestamptz NOT NULL,
    state_since  timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS "{name}_claim" ON {messages} (consumer, due_at, sequence) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS "{name}_state" ON {messages} (consumer, state, state_since, sequence);
CREATE INDEX IF NOT EXISTS "{name}_id" ON {messages} (consumer, message_id);
CREATE INDEX IF NOT EXISTS "{name}_key" ON {messages} (consumer, ordering_key, state, sequence)
    WHERE ordering_key IS NOT NULL AND state <> 'done';
COMMENT ON TABLE {messages} IS '{comment}';
