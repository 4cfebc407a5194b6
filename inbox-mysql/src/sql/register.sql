-- Registers rows: consumer, message id, event type, fingerprint, attempt.
--
-- IGNORE turns the duplicate key into a warning, and with it every other ignorable error. So the
-- values are checked before, the table is verified, and a row that was not inserted is a duplicate
-- only once its original was read.
INSERT IGNORE INTO {table} (consumer, message_id, event_type, fingerprint, attempt)
VALUES {rows}
