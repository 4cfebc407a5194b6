-- Locks messages that are due, the one first that has been due longest, and passes over what is locked.
--
-- The index is forced: InnoDB locks the rows that it reads, not those that it returns, so a scan or a sort
-- would lock the whole queue.
SELECT sequence,
       attempts >= COALESCE(allowed, {max_attempts}),
       lease_token IS NOT NULL,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now})
FROM {table} FORCE INDEX (claim)
WHERE consumer = {consumer} AND state = {pending} AND due_at <= {now}
ORDER BY due_at, sequence
LIMIT {limit}
FOR UPDATE SKIP LOCKED
