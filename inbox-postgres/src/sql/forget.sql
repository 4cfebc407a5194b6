-- Deletes one registration. $1 consumer, $2 message id, $3 lock_timeout for the wait.
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', $3, true)
)
DELETE FROM {table}
USING bound
WHERE consumer = $1 AND message_id = $2
