-- The whole messages. VARBINARY and BLOB, since every collation merges some values, and since text
-- would be converted, cut or refused by its character set.
CREATE TABLE IF NOT EXISTS {table} (
    -- The order of receiving. There is no key on (consumer, message_id): the registration decides.
    sequence     BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer     VARBINARY(100) NOT NULL,
    message_id   VARBINARY(255) NOT NULL,
    event_type   VARBINARY(255) NOT NULL,
    fingerprint  BINARY(16)     NULL,
    payload      LONGBLOB       NOT NULL,
    headers      MEDIUMBLOB     NOT NULL,
    content_type VARBINARY(255) NULL,
    ordering_key VARBINARY(255) NULL,
    state        VARBINARY(7)   NOT NULL,
    lease_token  BINARY(16)     NULL,
    -- When a claim looks at it next: not before its time, at its next attempt, or at its lease's end.
    due_at       DATETIME(6)    NOT NULL,
    not_before   DATETIME(6)    NOT NULL,
    attempts     INT            NOT NULL DEFAULT 0,
    -- So many attempts in all, where a replay has given it another one.
    allowed      INT            NULL,
    -- A line of JSON for each thing that happened to it.
    history      LONGBLOB       NOT NULL,
    received_at  DATETIME(6)    NOT NULL,
    state_since  DATETIME(6)    NOT NULL,
    -- The statements name these indexes: InnoDB locks what it reads, so each must read what it means, no more.
    KEY claim (consumer, state, due_at, sequence),
    KEY state_since (consumer, state, state_since, sequence),
    KEY message_id (consumer, message_id),
    KEY ordering_key (consumer, ordering_key, state, sequence),
    CHECK (state IN ({pending}, {done}, {dead})),
    CHECK (lease_token IS NULL OR state = {pending})
) ENGINE = InnoDB COMMENT = '{comment}';
