-- Everything that verify finds of the table of kept messages: one row a finding. What it finds of the server
-- and the session is in ../verify.sql.
WITH messages AS (
    SELECT table_type, engine, table_comment, create_options
    FROM information_schema.tables
    WHERE table_schema = '{schema}' AND table_name = '{table}'
), expected AS (
    SELECT 'sequence' AS name, 'BIGINT AUTO_INCREMENT' AS type, 'bigint' AS base, NULL AS bytes, 'NO' AS nullable, '' AS rights
    UNION ALL SELECT 'consumer', 'VARBINARY({consumer_limit})', 'varbinary', {consumer_limit}, 'NO', 'insert'
    UNION ALL SELECT 'message_id', 'VARBINARY({id_limit})', 'varbinary', {id_limit}, 'NO', 'insert'
    UNION ALL SELECT 'event_type', 'VARBINARY({type_limit})', 'varbinary', {type_limit}, 'NO', 'insert'
    UNION ALL SELECT 'fingerprint', 'BINARY(16)', 'binary', 16, 'YES', 'insert'
    UNION ALL SELECT 'payload', 'LONGBLOB', 'longblob', NULL, 'NO', 'insert'
    UNION ALL SELECT 'headers', 'MEDIUMBLOB', 'mediumblob', NULL, 'NO', 'insert'
    UNION ALL SELECT 'content_type', 'VARBINARY(255)', 'varbinary', 255, 'YES', 'insert'
    UNION ALL SELECT 'ordering_key', 'VARBINARY(255)', 'varbinary', 255, 'YES', 'insert'
    UNION ALL SELECT 'state', 'VARBINARY(7)', 'varbinary', 7, 'NO', 'insert,update'
    UNION ALL SELECT 'lease_token', 'BINARY(16)', 'binary', 16, 'YES', 'update'
    UNION ALL SELECT 'due_at', 'DATETIME(6)', 'datetime', NULL, 'NO', 'insert,update'
    UNION ALL SELECT 'not_before', 'DATETIME(6)', 'datetime', NULL, 'NO', 'insert,update'
    UNION ALL SELECT 'attempts', 'INT', 'int', NULL, 'NO', 'insert,update'
    UNION ALL SELECT 'allowed', 'INT', 'int', NULL, 'YES', 'update'
    UNION ALL SELECT 'history', 'LONGBLOB', 'longblob', NULL, 'NO', 'insert,update'
    UNION ALL SELECT 'received_at', 'DATETIME(6)', 'datetime', NULL, 'NO', 'insert'
    UNION ALL SELECT 'state_since', 'DATETIME(6)', 'datetime', NULL, 'NO', 'insert,update'
), present AS (
    SELECT column_name AS name,
           column_type AS type,
           data_type AS base,
           character_octet_length AS bytes,
           datetime_precision AS digits,
           is_nullable AS nullable,
           column_default AS preset,
           generation_expression AS formula,
           extra,
           privileges
    FROM information_schema.columns
    WHERE table_schema = '{schema}' AND table_name = '{table}'
), actual AS (
    SELECT expected.name,
           expected.type AS wanted_type,
           expected.bytes AS wanted_bytes,
           expected.nullable AS wanted_nullable,
           expected.rights,
           present.type,
           present.bytes,
           present.nullable,
           present.formula,
           present.privileges,
           CASE WHEN expected.base = 'datetime' THEN present.base = 'datetime' AND present.digits = 6
                WHEN expected.base = 'mediumblob' THEN present.base IN ('mediumblob', 'longblob')
                WHEN expected.base = 'int' THEN present.base IN ('int', 'bigint')
                WHEN expected.name = 'sequence' THEN present.base = 'bigint' AND present.extra LIKE '%auto_increment%'
                WHEN expected.base = 'binary' THEN present.base = 'varbinary' OR present.base = 'binary' AND present.bytes <= 16
                ELSE present.base = expected.base END AS type_fits
    FROM expected
    JOIN present ON present.name = expected.name
), wanted_index AS (
    SELECT 'claim' AS name, 'consumer,state,due_at,sequence' AS columns
    UNION ALL SELECT 'state_since', 'consumer,state,state_since,sequence'
    UNION ALL SELECT 'message_id', 'consumer,message_id'
    UNION ALL SELECT 'ordering_key', 'consumer,ordering_key,state,sequence'
    UNION ALL SELECT 'PRIMARY', 'sequence'
), present_index AS (
    SELECT index_name AS name,
           MIN(non_unique) AS non_unique,
           GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ',') AS columns,
           COUNT(sub_part) AS prefixes
    FROM information_schema.statistics
    WHERE table_schema = '{schema}' AND table_name = '{table}' AND {index_is_used}
    GROUP BY index_name
), finding (place, refused, text) AS (
    SELECT 10, FALSE, CONCAT('max_allowed_packet is ', @@max_allowed_packet, ', so a payload of 16 MiB is refused, which takes a packet of {packet} bytes; raise it, or lower the inbox''s limit by with_max_payload')
    FROM dual WHERE @@max_allowed_packet < {packet}

    -- The table
    UNION ALL
    SELECT 20, TRUE, 'the table {schema}.{table} does not exist, or this account has no right on it and so cannot see it; call create_message_schema, or run the texts of messages_ddl and message_grants'
    FROM dual WHERE NOT EXISTS (SELECT 1 FROM messages)
    UNION ALL
    SELECT 21, TRUE, CONCAT('it is not an ordinary table but a ', LOWER(table_type), '; use an ordinary table')
    FROM messages WHERE table_type NOT IN ('BASE TABLE', 'TEMPORARY')
    UNION ALL
    SELECT 22, TRUE, CONCAT('its engine is ', engine, ', and only with InnoDB does a rollback forget a message, and a claim pass over what is locked; run ALTER TABLE ... ENGINE = InnoDB')
    FROM messages WHERE engine <> 'InnoDB'
    UNION ALL
    SELECT 23, TRUE, 'it is partitioned: dropping a partition loses messages; run ALTER TABLE ... REMOVE PARTITIONING'
    FROM messages WHERE create_options LIKE '%partitioned%'
    UNION ALL
    SELECT 24, TRUE, CONCAT('the trigger ', trigger_name, ' can change a message, or refuse it; drop it')
    FROM information_schema.triggers
    WHERE event_object_schema = '{schema}' AND event_object_table = '{table}'

    -- The columns
    UNION ALL
    SELECT 30, TRUE, CONCAT('the column ', name, ' is missing; add it as ', type)
    FROM expected
    WHERE EXISTS (SELECT 1 FROM messages) AND NOT EXISTS (SELECT 1 FROM present WHERE present.name = expected.name)
    UNION ALL
    SELECT 31, TRUE, CONCAT('the column ', name, ' is of type ', type, ', which cuts, rounds, pads or refuses values; make it ', wanted_type)
    FROM actual WHERE NOT type_fits
    UNION ALL
    SELECT 32, TRUE, CONCAT('the column ', name, ' is of type ', type, ', too narrow, and what does not fit is cut where strict mode is off; make it ', wanted_type)
    FROM actual WHERE type_fits AND bytes < wanted_bytes
    UNION ALL
    SELECT 33, TRUE, CONCAT('the column ', name, ' may be NULL, which no message is; make it NOT NULL')
    FROM actual WHERE wanted_nullable = 'NO' AND nullable = 'YES'
    UNION ALL
    SELECT 34, TRUE, CONCAT('the column ', name, ' is NOT NULL, but not every message has one; make it NULL')
    FROM actual WHERE wanted_nullable = 'YES' AND nullable = 'NO'
    UNION ALL
    SELECT 35, TRUE, CONCAT('the column ', name, ' is generated and cannot be written; make it a plain column')
    FROM actual WHERE formula <> ''
    UNION ALL
    SELECT 37, TRUE, CONCAT('the further column ', name, ' is NOT NULL without a default, so nothing can be kept; give it one, or make it NULL')
    FROM present
    WHERE name NOT IN (SELECT name FROM expected) AND nullable = 'NO' AND preset IS NULL
      AND COALESCE(formula, '') = ''

    -- The indexes, which the statements name, and the constraints
    UNION ALL
    SELECT 40, TRUE, CONCAT('there is no index ', wanted_index.name, ' on (', wanted_index.columns, '), which the statements name, since InnoDB locks all that it reads without it; add it')
    FROM wanted_index
    WHERE EXISTS (SELECT 1 FROM messages WHERE table_type <> 'VIEW') AND NOT EXISTS (
        SELECT 1
        FROM present_index
        WHERE present_index.name = wanted_index.name AND present_index.columns = wanted_index.columns
          AND present_index.prefixes = 0)
    UNION ALL
    SELECT 41, TRUE, CONCAT('the unique index ', name, ' can refuse a message whose registration is new; drop it')
    FROM present_index WHERE non_unique = 0 AND name <> 'PRIMARY'
    UNION ALL
    SELECT 42, TRUE, CONCAT('the foreign key ', constraint_name, ' can refuse a message, or wait for another table''s rows; drop it')
    FROM information_schema.table_constraints
    WHERE table_schema = '{schema}' AND table_name = '{table}' AND constraint_type = 'FOREIGN KEY'
    UNION ALL
    -- Its own two have the names that the server gave them: MySQL by the table's, MariaDB by their number.
    SELECT 43, TRUE, CONCAT('the check ', constraint_name, ' is none of messages_ddl and can refuse a message that is within the limits, or a change of its state; drop it')
    FROM information_schema.table_constraints
    WHERE table_schema = '{schema}' AND table_name = '{table}' AND constraint_type = 'CHECK'
      AND LOWER(constraint_name) NOT IN (LOWER('{table}_chk_1'), LOWER('{table}_chk_2'), 'constraint_1', 'constraint_2')

    -- The rights of this account
    UNION ALL
    SELECT 50, TRUE, CONCAT('the account ', CURRENT_USER(), ' may not SELECT the column ', name, '; see the text of message_grants')
    FROM actual WHERE NOT FIND_IN_SET('select', privileges)
    UNION ALL
    SELECT 51, TRUE, CONCAT('the account ', CURRENT_USER(), ' may not INSERT the column ', name, '; see the text of message_grants')
    FROM actual WHERE FIND_IN_SET('insert', rights) AND NOT FIND_IN_SET('insert', privileges)
    UNION ALL
    SELECT 52, TRUE, CONCAT('the account ', CURRENT_USER(), ' may not UPDATE the column ', name, '; see the text of message_grants')
    FROM actual WHERE FIND_IN_SET('update', rights) AND NOT FIND_IN_SET('update', privileges)

    -- The version, kept in the table's comment
    UNION ALL
    SELECT 60, COALESCE(version > {version}, FALSE),
           CASE WHEN version IS NULL THEN
               'the table''s comment names no version of the schema; if it is the inbox''s table, run ALTER TABLE ... COMMENT = ''inbox messages schema {version}'''
           WHEN version > {version} THEN
               CONCAT('the table is of version ', version, ', this library knows versions up to {version}; use a newer library')
           ELSE
               CONCAT('the table is of version ', version, ', this library makes version {version}; migrate it')
           END
    FROM (SELECT CASE WHEN table_comment REGEXP '^inbox messages schema [0-9]{1,6}$'
                      THEN CAST(SUBSTRING(table_comment, 23) AS UNSIGNED) END AS version
          FROM messages) AS comment
    WHERE version IS NULL OR version <> {version}
)
SELECT CAST(refused AS SIGNED), CAST(text AS CHAR) FROM finding ORDER BY place, text
