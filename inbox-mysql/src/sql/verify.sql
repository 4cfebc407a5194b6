-- Everything that verify finds: one row a finding, each saying what, why, and what to do.
--
-- What is asked of information_schema is named by literals throughout: MariaDB opens the one table
-- for them, and every table of the server for a join. The limits are in bytes.
WITH inbox AS (
    SELECT table_type, engine, table_comment, create_options
    FROM information_schema.tables
    WHERE table_schema = '{schema}' AND table_name = '{table}'
), expected AS (
    SELECT 'consumer' AS name, 'VARBINARY({consumer_limit})' AS type, {consumer_limit} AS bytes, 'NO' AS nullable
    UNION ALL SELECT 'message_id', 'VARBINARY({id_limit})', {id_limit}, 'NO'
    UNION ALL SELECT 'event_type', 'VARBINARY({type_limit})', {type_limit}, 'NO'
    UNION ALL SELECT 'fingerprint', 'BINARY(16)', 16, 'YES'
    UNION ALL SELECT 'attempt', 'BINARY(16)', 16, 'YES'
    UNION ALL SELECT 'registered_at', 'DATETIME(6)', NULL, 'NO'
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
           present.type,
           present.bytes,
           present.nullable,
           present.preset,
           present.formula,
           present.privileges,
           CASE WHEN expected.type = 'DATETIME(6)' THEN present.base = 'datetime' AND present.digits = 6
                WHEN present.base = 'binary' THEN expected.type = 'BINARY(16)' AND present.bytes <= 16
                ELSE present.base = 'varbinary' END AS type_fits
    FROM expected
    JOIN present ON present.name = expected.name
), unique_index AS (
    SELECT index_name AS name,
           -- Whole columns, and no others; in which order does not matter.
           index_name = 'PRIMARY' AND COUNT(*) = 2 AND COUNT(sub_part) = 0
           AND SUM(column_name IN ('consumer', 'message_id')) = 2 AS is_key
    FROM information_schema.statistics
    WHERE table_schema = '{schema}' AND table_name = '{table}' AND non_unique = 0
    GROUP BY index_name
), finding (place, refused, text) AS (
    -- The server and the session
    SELECT 10, TRUE, 'the server is read-only, as a replica is; connect to the primary, or set read_only to OFF (an account that it does not bind is refused as well: what it writes there, the primary does not have)'
    FROM dual WHERE CONCAT(@@read_only) NOT IN ('0', 'OFF')
    UNION ALL
    SELECT 11, TRUE, 'transactions are read-only by default, so nothing can be registered; set {session_read_only} to OFF'
    FROM dual WHERE {session_read_only} <> 0
    UNION ALL
    SELECT 12, FALSE, 'autocommit is off: a statement outside of a transaction opens one that nobody commits, and it keeps locks and an old snapshot; set autocommit to ON for the pool''s sessions'
    FROM dual WHERE @@autocommit = 0
    UNION ALL
    SELECT 13, FALSE, CONCAT('innodb_flush_log_at_trx_commit is ', @@innodb_flush_log_at_trx_commit, ': a crash can lose an acknowledged message together with its registration; set it to 1')
    FROM dual WHERE @@innodb_flush_log_at_trx_commit <> 1
    UNION ALL
    SELECT 14, FALSE, CONCAT('sync_binlog is ', @@sync_binlog, ', and after a crash the binary log decides what was committed: an acknowledged message can be lost together with its registration; set it to 1')
    FROM dual WHERE @@log_bin <> 0 AND @@sync_binlog <> 1
    UNION ALL
    SELECT 15, FALSE, 'innodb_doublewrite is off: a crash can leave half-written pages, and with them damaged registrations; set it to ON unless the file system writes pages atomically'
    FROM dual WHERE CONCAT(@@innodb_doublewrite) IN ('0', 'OFF')

    -- The table
    UNION ALL
    SELECT 20, TRUE, 'the table {schema}.{table} does not exist, or this account has no right on it and so cannot see it; call create_schema, or run the texts of ddl and grants'
    FROM dual WHERE NOT EXISTS (SELECT 1 FROM inbox)
    UNION ALL
    SELECT 21, TRUE, CONCAT('it is not an ordinary table but a ', LOWER(table_type), CASE table_type
        WHEN 'SYSTEM VERSIONED' THEN ' one, which keeps what is forgotten and purged; run ALTER TABLE ... DROP SYSTEM VERSIONING'
        ELSE ', which has no unique key of its own; use an ordinary table' END)
    FROM inbox WHERE table_type NOT IN ('BASE TABLE', 'TEMPORARY')
    UNION ALL
    SELECT 22, TRUE, CONCAT('its engine is ', engine, ', and only with InnoDB does a rollback forget the registration, and a second one wait for the first; run ALTER TABLE ... ENGINE = InnoDB')
    FROM inbox WHERE engine <> 'InnoDB'
    UNION ALL
    SELECT 23, TRUE, 'it is partitioned: IGNORE skips a row for which there is no partition, and dropping a partition forgets ids within the window; run ALTER TABLE ... REMOVE PARTITIONING'
    FROM inbox WHERE create_options LIKE '%partitioned%'
    UNION ALL
    SELECT 24, TRUE, CONCAT('the trigger ', trigger_name, ' can change a registration, or refuse it, which IGNORE may hide; drop it')
    FROM information_schema.triggers
    WHERE event_object_schema = '{schema}' AND event_object_table = '{table}'
    UNION ALL
    -- MySQL and older MariaDBs show triggers only to accounts with the right to create them.
    SELECT 25, FALSE, CONCAT('the account ', CURRENT_USER(), ' has no right TRIGGER of its own, so triggers may go unseen, and one can change or refuse a registration; look once with an account that has it, such as the owner''s')
    FROM inbox
    WHERE NOT EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE privilege_type = 'TRIGGER')
      AND NOT EXISTS (
        SELECT 1
        FROM information_schema.schema_privileges
        WHERE privilege_type = 'TRIGGER' AND '{schema}' LIKE table_schema)
      AND NOT EXISTS (
        SELECT 1
        FROM information_schema.table_privileges
        WHERE privilege_type = 'TRIGGER' AND table_schema = '{schema}' AND table_name = '{table}')

    -- The columns
    UNION ALL
    SELECT 30, TRUE, CONCAT('the column ', name, ' is missing; add it as ', type)
    FROM expected
    WHERE EXISTS (SELECT 1 FROM inbox) AND NOT EXISTS (SELECT 1 FROM present WHERE present.name = expected.name)
    UNION ALL
    SELECT 31, TRUE, CONCAT('the column ', name, ' is of type ', type, ', which merges, pads, cuts or refuses values; make it ', wanted_type)
    FROM actual WHERE NOT type_fits
    UNION ALL
    SELECT 32, TRUE, CONCAT('the column ', name, ' is of type ', type, ', too narrow, and IGNORE cuts what does not fit; make it ', wanted_type)
    FROM actual WHERE type_fits AND bytes < wanted_bytes
    UNION ALL
    SELECT 33, TRUE, CONCAT('the column ', name, ' may be NULL, which no message is; make it NOT NULL')
    FROM actual WHERE wanted_nullable = 'NO' AND nullable = 'YES'
    UNION ALL
    SELECT 34, TRUE, CONCAT('the column ', name, ' is NOT NULL, but not every message has one, and IGNORE would make one up; make it NULL')
    FROM actual WHERE wanted_nullable = 'YES' AND nullable = 'NO'
    UNION ALL
    SELECT 35, TRUE, CONCAT('the column ', name, ' is generated and cannot be written; make it a plain column')
    FROM actual WHERE formula <> ''
    UNION ALL
    SELECT 36, TRUE, 'the default of the column registered_at is not the database''s clock in UTC, and no time is passed in; make it DEFAULT (UTC_TIMESTAMP(6))'
    FROM actual
    WHERE name = 'registered_at' AND COALESCE(formula, '') = ''
      AND LOWER(COALESCE(preset, '')) NOT IN ('utc_timestamp(6)', '(utc_timestamp(6))')
    UNION ALL
    SELECT 37, TRUE, CONCAT('the further column ', name, ' is NOT NULL without a default, and IGNORE would make one up; give it one, or make it NULL')
    FROM present
    WHERE name NOT IN (SELECT name FROM expected) AND nullable = 'NO' AND preset IS NULL
      AND COALESCE(formula, '') = '' AND extra NOT LIKE '%auto_increment%'
    UNION ALL
    SELECT 38, TRUE, CONCAT('the further column ', name, ' is AUTO_INCREMENT: each duplicate takes a number until none is left, and where it is the key, one duplicate blocks all inserts; drop it')
    FROM present WHERE extra LIKE '%auto_increment%'

    -- The key, the other indexes and the constraints
    UNION ALL
    SELECT 40, TRUE, 'the primary key is not (consumer, message_id): it is missing, wider, narrower, or on prefixes; make it that. Another unique key will not do: beside a primary key of its own, one duplicate blocks all inserts'
    FROM inbox
    WHERE table_type <> 'VIEW' AND NOT EXISTS (SELECT 1 FROM unique_index WHERE is_key)
    UNION ALL
    SELECT 41, TRUE, CONCAT('the unique index ', name, ' is not the key, so a message can conflict with another one, which IGNORE hides; drop it')
    FROM unique_index WHERE name <> 'PRIMARY'
    UNION ALL
    SELECT 42, TRUE, CONCAT('the foreign key ', constraint_name, ' can refuse a message, which IGNORE hides, or wait for another table''s rows; drop it')
    FROM information_schema.table_constraints
    WHERE table_schema = '{schema}' AND table_name = '{table}' AND constraint_type = 'FOREIGN KEY'
    UNION ALL
    SELECT 43, TRUE, CONCAT('the check ', constraint_name, ' can refuse a message that is within the limits, which IGNORE hides; drop it')
    FROM information_schema.table_constraints
    WHERE table_schema = '{schema}' AND table_name = '{table}' AND constraint_type = 'CHECK'
    UNION ALL
    -- Of this database only, since MariaDB would open every table of all.
    SELECT DISTINCT 44, FALSE, CONCAT('the foreign key ', constraint_name, ' of ', table_name, ' refers to this table: forgetting and purging can fail; drop it')
    FROM information_schema.key_column_usage
    WHERE table_schema = '{schema}' AND referenced_table_schema = '{schema}' AND referenced_table_name = '{table}'
    UNION ALL
    SELECT 45, FALSE, 'no index starts with registered_at, so a purge reads, and locks, the whole table; run ALTER TABLE ... ADD KEY registered_at (registered_at)'
    FROM inbox
    WHERE table_type = 'BASE TABLE' AND NOT EXISTS (
        SELECT 1
        FROM information_schema.statistics
        WHERE table_schema = '{schema}' AND table_name = '{table}'
          AND column_name = 'registered_at' AND seq_in_index = 1
          AND {index_is_used})

    -- The rights of this account
    UNION ALL
    SELECT 50, TRUE, CONCAT('the account ', CURRENT_USER(), ' may not SELECT the column ', name, '; see the text of grants')
    FROM actual WHERE NOT FIND_IN_SET('select', privileges)
    UNION ALL
    SELECT 51, TRUE, CONCAT('the account ', CURRENT_USER(), ' may not INSERT the column ', name, '; see the text of grants')
    FROM actual WHERE name <> 'registered_at' AND NOT FIND_IN_SET('insert', privileges)

    -- The version, kept in the table's comment
    UNION ALL
    SELECT 60, COALESCE(version > {version}, FALSE),
           CASE WHEN version IS NULL THEN
               'the table''s comment names no version of the schema; if it is the inbox''s table, run ALTER TABLE ... COMMENT = ''inbox schema {version}'''
           WHEN version > {version} THEN
               CONCAT('the table is of version ', version, ', this library knows versions up to {version}; use a newer library')
           ELSE
               CONCAT('the table is of version ', version, ', this library makes version {version}; migrate it')
           END
    FROM (SELECT CASE WHEN table_comment REGEXP '^inbox schema [0-9]{1,6}$'
                      THEN CAST(SUBSTRING(table_comment, 14) AS UNSIGNED) END AS version
          FROM inbox) AS comment
    WHERE version IS NULL OR version <> {version}
)
SELECT CAST(refused AS SIGNED), CAST(text AS CHAR) FROM finding ORDER BY place, text
