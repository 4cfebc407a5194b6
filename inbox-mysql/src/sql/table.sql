CREATE TABLE IF NOT EXISTS {table} (
    consumer      VARBINARY(100) NOT NULL,
    message_id    VARBINARY(255) NOT NULL,
    event_type    VARBINARY(255) NOT NULL,
    fingerprint   BINARY(16)     NULL,
    -- Which statement of a batch inserted the row; NULL of a single registration.
    attempt       BINARY(16)     NULL,
    registered_at DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer, message_id),
    KEY registered_at (registered_at)
) ENGINE = InnoDB COMMENT = '{comment}';
