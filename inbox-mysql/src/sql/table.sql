-- VARBINARY, since every collation merges some ids, if only by spaces at their ends. DATETIME and UTC,
-- since TIMESTAMP ends in 2038 and depends on the session's zone.
CREATE TABLE IF NOT EXISTS {table} (
    consumer      VARBINARY(100) NOT NULL,
    message_id    VARBINARY(255) NOT NULL,
    event_type    VARBINARY(255) NOT NULL,
    fingerprint   BINARY(16)     NULL,
    -- Which process, session and statement inserted the row. It matters until the commit.
    attempt       BINARY(16)     NULL,
    registered_at DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- The only key: beside an AUTO_INCREMENT, one duplicate would block all inserts.
    PRIMARY KEY (consumer, message_id),
    -- For the purge, which would otherwise read, and lock, all rows.
    KEY registered_at (registered_at)
) ENGINE = InnoDB COMMENT = '{comment}';
