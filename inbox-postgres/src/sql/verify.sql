-- Everything that verify finds: one row a finding, in one snapshot of the catalogue.
--
-- $1 schema, $2 table, $3 the longest consumer, $4 the longest message id, $5 the longest event
-- type in bytes, $6 the version of the schema that this library makes.
--
-- Each check says what, why, and what to do.
WITH inbox AS (
    SELECT pg_class.*
    FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relname = $2
), expected (name, type, is_text, required, bytes) AS (
    VALUES ('consumer', 'text', true, true, $3::int),
           ('message_id', 'text', true, true, $4::int),
           ('event_type', 'text', true, true, $5::int),
           ('fingerprint', 'bytea', false, false, NULL),
           ('registered_at', 'timestamp with time zone', false, true, NULL)
), actual AS (
    SELECT expected.*,
           pg_attribute.*,
           format_type(atttypid, atttypmod) AS full_type,
           CASE WHEN is_text THEN atttypid IN ('text'::regtype, 'varchar'::regtype)
                ELSE atttypid = type::regtype END AS type_fits,
           coalesce(collisdeterministic, true) AS deterministic
    FROM expected
    CROSS JOIN inbox
    LEFT JOIN pg_attribute ON attrelid = inbox.oid AND attname = name AND attnum > 0 AND NOT attisdropped
    LEFT JOIN pg_collation ON pg_collation.oid = attcollation
), unique_index AS (
    SELECT indexrelid::regclass AS name,
           -- The key, and nothing that makes it hold for some rows, at some time, or loosely.
           indnkeyatts = 2 AND indexprs IS NULL AND indpred IS NULL
           AND indimmediate AND indisvalid AND indisready
           AND ARRAY(SELECT attname::text
                     FROM pg_attribute
                     WHERE attrelid = indrelid AND attnum = ANY (indkey[0:1])
                     ORDER BY 1) = ARRAY['consumer', 'message_id']
           AND NOT EXISTS (SELECT FROM pg_collation
                           WHERE oid = ANY (indcollation) AND NOT collisdeterministic) AS is_key
    FROM pg_index
    JOIN inbox ON inbox.oid = indrelid
    WHERE indisunique OR indisexclusion
), finding (place, refused, text) AS (
    -- The server
    SELECT 10, true, format(
        'the database''s encoding is %s, which cannot hold every id; use a database with UTF8',
        current_setting('server_encoding'))
    WHERE current_setting('server_encoding') <> 'UTF8'
    UNION ALL
    SELECT 10, true, format(
        'the session''s client_encoding is %s, so the server takes the UTF-8 that sqlx sends for something else, and stores another id; leave it at UTF8, which sqlx sets',
        current_setting('client_encoding'))
    WHERE current_setting('client_encoding') <> 'UTF8'
    UNION ALL
    SELECT 11, true, 'the server is a standby and takes no writes; connect to the primary'
    WHERE pg_is_in_recovery()
    UNION ALL
    SELECT 12, true, 'transactions are read-only by default, so nothing can be registered; set default_transaction_read_only to off'
    WHERE NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'on'
    UNION ALL
    SELECT 13, false, 'synchronous_commit is off: a crash of the server can lose an acknowledged message together with its registration; set it to on for this role'
    WHERE current_setting('synchronous_commit') = 'off'
    UNION ALL
    SELECT 14, false, 'fsync is off: a crash of the server can lose or damage committed registrations; set it to on'
    WHERE current_setting('fsync') = 'off'

    -- The table
    UNION ALL
    SELECT 20, true, format('the table %I.%I does not exist; call create_schema, or run the text of ddl', $1, $2)
    WHERE NOT EXISTS (SELECT FROM inbox)
    UNION ALL
    SELECT 21, true, 'it is not an ordinary table (a view, a foreign or a partitioned table): a unique key there does not hold, or only within a partition; make it an ordinary table'
    FROM inbox WHERE relkind <> 'r'
    UNION ALL
    SELECT 22, true, 'it inherits or is inherited from: a unique key holds for each table alone; use a table of its own'
    FROM inbox
    WHERE relispartition OR EXISTS (SELECT FROM pg_inherits WHERE inbox.oid IN (inhrelid, inhparent))
    UNION ALL
    SELECT 23, true, 'it is unlogged: a crash of the server empties it, and every message is new again; run ALTER TABLE ... SET LOGGED'
    FROM inbox WHERE relpersistence = 'u'
    UNION ALL
    SELECT 24, true, 'it is temporary: other sessions do not see its registrations; use a permanent table'
    FROM inbox WHERE relpersistence = 't'
    UNION ALL
    SELECT 25, true, 'row level security is on: a row that a policy hides is neither inserted nor found; run ALTER TABLE ... DISABLE ROW LEVEL SECURITY'
    FROM inbox WHERE relrowsecurity
    UNION ALL
    SELECT 26, true, format('the trigger %I can swallow or change a registration; drop or disable it', tgname)
    FROM pg_trigger JOIN inbox ON inbox.oid = tgrelid
    WHERE NOT tgisinternal AND tgenabled <> 'D'
    UNION ALL
    SELECT 27, true, format('the rule %I can swallow or redirect a registration; drop or disable it', rulename)
    FROM pg_rewrite JOIN inbox ON inbox.oid = ev_class
    WHERE relkind = 'r' AND ev_enabled <> 'D'

    -- The columns
    UNION ALL
    SELECT 30, true, format('the column %s is missing; add it as %s', name, type)
    FROM actual WHERE attnum IS NULL
    UNION ALL
    SELECT 31, true, format('the column %s is of type %s, which changes, pads or refuses values; make it %s', name, full_type, type)
    FROM actual WHERE NOT type_fits
    UNION ALL
    SELECT 32, true, format('the column %s is of type %s, too narrow for the limit of %s bytes; make it text', name, full_type, bytes)
    FROM actual WHERE type_fits AND is_text AND atttypmod >= 0 AND atttypmod - 4 < bytes
    UNION ALL
    SELECT 33, true, format('the column %s may be NULL, and the unique key does not hold for NULL; make it NOT NULL', name)
    FROM actual WHERE required AND NOT attnotnull
    UNION ALL
    SELECT 34, true, format('the column %s is NOT NULL, but not every message has one; drop NOT NULL', name)
    FROM actual WHERE NOT required AND attnotnull
    UNION ALL
    SELECT 35, true, format('the collation of the column %s is nondeterministic and takes different ids for equal; make it COLLATE "C"', name)
    FROM actual WHERE NOT deterministic
    UNION ALL
    SELECT 36, true, format('the column %s is generated and cannot be written; make it a plain column', name)
    FROM actual WHERE attgenerated <> ''
    UNION ALL
    SELECT 37, true, 'the column registered_at has no default, and the time is the database''s to set; run ALTER ... SET DEFAULT clock_timestamp()'
    FROM actual WHERE name = 'registered_at' AND NOT atthasdef
    UNION ALL
    SELECT 38, true, format('the further column %I is NOT NULL without a default, so every registration fails; give it one', attname)
    FROM pg_attribute JOIN inbox ON inbox.oid = attrelid
    WHERE attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef AND attidentity = ''
      AND attname NOT IN (SELECT name FROM expected)
    UNION ALL
    SELECT 39, true, format('the further column %I is an %s fed by a sequence, which every duplicate advances until it ends; make it bigint or drop it', attname, format_type(atttypid, atttypmod))
    FROM pg_attribute JOIN inbox ON inbox.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attnum > 0 AND NOT attisdropped AND atttypid <> 'bigint'::regtype
      AND (attidentity <> '' OR pg_get_expr(adbin, adrelid) LIKE '%nextval(%')

    -- The key and the constraints
    UNION ALL
    SELECT 40, true, 'no unique index decides on (consumer, message_id): it is missing, wider, partial, deferrable, invalid or of a nondeterministic collation; add PRIMARY KEY (consumer, message_id)'
    FROM inbox
    WHERE relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM unique_index WHERE is_key)
    UNION ALL
    SELECT 41, true, format('the unique or exclusion index %s is not the key, so a message can conflict with another one; drop it', name)
    FROM unique_index WHERE NOT is_key
    UNION ALL
    SELECT 42, true, format('the foreign key %I can refuse a message, or wait for another table''s rows; drop it', conname)
    FROM pg_constraint JOIN inbox ON inbox.oid = conrelid WHERE contype = 'f'
    UNION ALL
    SELECT 43, true, format('the check %I can refuse a message that is within the limits, each time it is delivered; drop it', conname)
    FROM pg_constraint JOIN inbox ON inbox.oid = conrelid WHERE contype = 'c'
    UNION ALL
    SELECT 44, false, format('the foreign key %I of %s refers to this table: forgetting and purging can fail; drop it', conname, conrelid::regclass)
    FROM pg_constraint JOIN inbox ON inbox.oid = confrelid WHERE contype = 'f' AND conrelid <> confrelid

    -- The rights of this role
    UNION ALL
    SELECT 50, true, format('the role %I has no USAGE on the schema %I; see the text of grants', current_user, $1)
    FROM inbox WHERE NOT has_schema_privilege(relnamespace, 'USAGE')
    UNION ALL
    SELECT 51, true, format('the role %I may not SELECT the column %s; see the text of grants', current_user, name)
    FROM actual WHERE NOT has_column_privilege(attrelid, attnum, 'SELECT')
    UNION ALL
    SELECT 52, true, format('the role %I may not INSERT the column %s; see the text of grants', current_user, name)
    FROM actual WHERE name <> 'registered_at' AND NOT has_column_privilege(attrelid, attnum, 'INSERT')

    -- The version, kept in the table's comment
    UNION ALL
    SELECT 60, version IS NOT NULL AND version > $6::int,
           CASE WHEN version IS NULL THEN
               format('the table''s comment names no version of the schema; if it is the inbox''s table, set it to ''inbox schema %s''', $6::int)
           WHEN version > $6::int THEN
               format('the table is of version %s, this library knows versions up to %s; use a newer library', version, $6::int)
           ELSE
               format('the table is of version %s, this library makes version %s; migrate it', version, $6::int)
           END
    FROM (SELECT substring(obj_description(oid, 'pg_class') FROM '^inbox schema ([0-9]{1,6})$')::int AS version
          FROM inbox) AS comment
    WHERE version IS DISTINCT FROM $6::int
)
SELECT refused, text FROM finding ORDER BY place, text
