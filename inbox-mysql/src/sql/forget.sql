-- Deletes one registration.
DELETE FROM {table}
WHERE consumer = {consumer} AND message_id IN ({ids})
