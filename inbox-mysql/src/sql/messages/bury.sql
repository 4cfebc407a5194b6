-- Makes messages dead that have spent their attempts.
UPDATE {table} FORCE INDEX (PRIMARY)
SET state = {dead}, lease_token = NULL, state_since = {at}
WHERE sequence IN ({sequences})
