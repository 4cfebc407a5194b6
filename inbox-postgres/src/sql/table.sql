CREATE TABLE IF NOT EXISTS {table} (
    consumer      text        COLLATE "C" NOT NULL,
    message_id    text        COLLATE "C" NOT NULL,
    event_type    text        COLLATE "C" NOT NULL,
    fingerprint   bytea,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX IF NOT EXISTS {time_index} ON {table} USING brin (registered_at);
COMMENT ON TABLE {table} IS '{comment}';
