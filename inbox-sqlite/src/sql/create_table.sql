-- The marker in the comment stays in sqlite_schema, so the version needs no table of its own.
-- STRICT: no value changes its storage class. WITHOUT ROWID: one b-tree, half the size.
CREATE TABLE IF NOT EXISTS {table} ( /* inbox schema 1 */
    consumer      TEXT    NOT NULL,
    message_id    TEXT    NOT NULL,
    event_type    TEXT    NOT NULL,
    fingerprint   BLOB,
    registered_at INTEGER NOT NULL DEFAULT ({now}),
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;
