-- Everything that verify_messages finds, as verify.sql does for the inbox's table: one row a finding.
--
-- $1 schema, $2 table, $3 the longest consumer, $4 the longest message id, event type, content type and
-- ordering key in bytes, $5 the version of the schema that this library makes.
WITH messages AS (
    SELECT pg_class.*
    FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relname = $2
), expected (name, type, is_text, required, bytes, inserted, updated) AS (
    VALUES ('sequence', 'bigint', false, true, NULL::int, false, false),
           ('consumer', 'text', true, true, $3::int, true, false),
           ('message_id', 'text', true, true, $4::int, true, false),
           ('event_type', 'text', true, true, $4::int, true, false),
           ('fingerprint', 'bytea', false, false, NULL, true, false),
           ('payload', 'bytea', false, true, NULL, true, false),
           ('headers', 'text', true, true, 1048576, true, false),
           ('content_type', 'text', true, false, $4::int, true, false),
           ('ordering_key', 'text', true, false, $4::int, true, false),
           ('state', 'text', true, true, 7, true, true),
           ('lease_token', 'bytea', false, false, NULL, false, true),
           ('due_at', 'timestamp with time zone', false, true, NULL, true, true),
           ('not_before', 'timestamp with time zone', false, true, NULL, true, true),
           ('attempts', 'integer', false, true, NULL, true, true),
           ('allowed', 'integer', false, false, NULL, false, true),
           ('history', 'text', true, true, 1000000, true, true),
           ('received_at', 'timestamp with time zone', false, true, NULL, true, false),
           ('state_since', 'timestamp with time zone', false, true, NULL, true, true)
), indexed AS (
    -- The columns of each index, and of which rows it is.
    SELECT indisunique OR indisexclusion AS is_unique,
           indexrelid::regclass AS name,
           ARRAY(SELECT attname::text
                 FROM unnest(indkey[0:indnkeyatts - 1]) WITH ORDINALITY AS key (attnum, place)
                 JOIN pg_attribute ON attrelid = indrelid AND pg_attribute.attnum = key.attnum
                 ORDER BY place) AS columns,
           indisvalid AND indisready AND indexprs IS NULL AS is_good,
           pg_get_expr(indpred, indrelid) AS predicate
    FROM pg_index
    JOIN messages ON messages.oid = indrelid
), needed_index (columns, predicate, is_needed, cost) AS (
    VALUES (ARRAY['consumer', 'due_at', 'sequence'], '(state = ''pending''::text)', true,
            'a claim reads every message that was ever kept'),
           (ARRAY['consumer', 'state', 'state_since', 'sequence'], NULL, false,
            'counting and listing read every message of the consumer'),
           (ARRAY['consumer', 'message_id'], NULL, false,
            'finding and replaying by id read every message of the consumer'),
           (ARRAY['consumer', 'ordering_key', 'state', 'sequence'],
            '((ordering_key IS NOT NULL) AND (state <> ''done''::text))', false,
            'a claim in order reads every message of the consumer for each candidate')
), actual AS (
    SELECT expected.*,
           pg_attribute.*,
           format_type(atttypid, atttypmod) AS full_type,
           CASE WHEN is_text THEN atttypid IN ('text'::regtype, 'varchar'::regtype)
                ELSE atttypid = type::regtype END AS type_fits,
           coalesce(collisdeterministic, true) AS deterministic
    FROM expected
    CROSS JOIN messages
    LEFT JOIN pg_attribute ON attrelid = messages.oid AND attname = name AND attnum > 0 AND NOT attisdropped
    LEFT JOIN pg_collation ON pg_collation.oid = attcollation
), finding (place, refused, text) AS (
    -- The server
    SELECT 10, true, format(
        'the database''s encoding is %s, which cannot hold every text; use a database with UTF8',
        current_setting('server_encoding'))
    WHERE current_setting('server_encoding') <> 'UTF8'
    UNION ALL
    SELECT 10, true, format(
        'the session''s client_encoding is %s, so the server takes the UTF-8 that sqlx sends for something else, and stores another text; leave it at UTF8, which sqlx sets',
        current_setting('client_encoding'))
    WHERE current_setting('client_encoding') <> 'UTF8'
    UNION ALL
    SELECT 11, true, 'the server is a standby and takes no writes; connect to the primary'
    WHERE pg_is_in_recovery()
    UNION ALL
    SELECT 12, true, 'transactions are read-only by default, so nothing can be kept; set default_transaction_read_only to off'
    WHERE NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'on'
    UNION ALL
    SELECT 13, false, 'synchronous_commit is off: a crash of the server can lose an acknowledged message; set it to on for this role'
    WHERE current_setting('synchronous_commit') = 'off'
    UNION ALL
    SELECT 14, false, 'fsync is off: a crash of the server can lose or damage acknowledged messages; set it to on'
    WHERE current_setting('fsync') = 'off'

    -- The table
    UNION ALL
    SELECT 20, true, format('the table %I.%I does not exist; call create_message_schema, or run the text of messages_ddl', $1, $2)
    WHERE NOT EXISTS (SELECT FROM messages)
    UNION ALL
    SELECT 21, true, 'it is not an ordinary table (a view, a foreign or a partitioned table): the statements lock and change rows of an ordinary table; make it one'
    FROM messages WHERE relkind <> 'r'
    UNION ALL
    SELECT 22, true, 'it inherits or is inherited from: other tables'' messages would be claimed with its own; use a table of its own'
    FROM messages
    WHERE relispartition OR EXISTS (SELECT FROM pg_inherits WHERE messages.oid IN (inhrelid, inhparent))
    UNION ALL
    SELECT 23, true, 'it is unlogged: a crash of the server empties it, and acknowledged messages are lost; run ALTER TABLE ... SET LOGGED'
    FROM messages WHERE relpersistence = 'u'
    UNION ALL
    SELECT 24, true, 'it is temporary: other sessions do not see its messages; use a permanent table'
    FROM messages WHERE relpersistence = 't'
    UNION ALL
    SELECT 25, true, 'row level security is on: a row that a policy hides is neither kept nor claimed; run ALTER TABLE ... DISABLE ROW LEVEL SECURITY'
    FROM messages WHERE relrowsecurity
    UNION ALL
    SELECT 26, true, format('the trigger %I can swallow or change a message; drop or disable it', tgname)
    FROM pg_trigger JOIN messages ON messages.oid = tgrelid
    WHERE NOT tgisinternal AND tgenabled <> 'D'
    UNION ALL
    SELECT 27, true, format('the rule %I can swallow or redirect a message; drop or disable it', rulename)
    FROM pg_rewrite JOIN messages ON messages.oid = ev_class
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
    SELECT 33, true, format('the column %s may be NULL, and no statement expects that; make it NOT NULL', name)
    FROM actual WHERE required AND NOT attnotnull
    UNION ALL
    SELECT 34, true, format('the column %s is NOT NULL, but not every message has one; drop NOT NULL', name)
    FROM actual WHERE NOT required AND attnotnull
    UNION ALL
    SELECT 35, true, format('the collation of the column %s is nondeterministic and takes different texts for equal; make it COLLATE "C"', name)
    FROM actual WHERE NOT deterministic
    UNION ALL
    SELECT 36, true, format('the column %s is generated and cannot be written; make it a plain column', name)
    FROM actual WHERE attgenerated <> ''
    UNION ALL
    SELECT 37, true, 'the column sequence is no identity column, so it gets no value; run ALTER ... ADD GENERATED ALWAYS AS IDENTITY'
    FROM actual WHERE name = 'sequence' AND attnum IS NOT NULL AND attidentity = ''
    UNION ALL
    SELECT 38, true, format('the further column %I is NOT NULL without a default, so no message can be kept; give it one', attname)
    FROM pg_attribute JOIN messages ON messages.oid = attrelid
    WHERE attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef AND attidentity = ''
      AND attname NOT IN (SELECT name FROM expected)

    -- The indexes and the constraints
    UNION ALL
    SELECT 40, true, 'no unique index decides on (sequence), so two messages can have the same; add PRIMARY KEY (sequence)'
    FROM messages
    WHERE relkind = 'r' AND NOT EXISTS (
        SELECT FROM indexed WHERE is_good AND is_unique AND columns = ARRAY['sequence'] AND predicate IS NULL)
    UNION ALL
    SELECT 41, true, format('the unique or exclusion index %s can refuse a message that is registered as new, as after forgetting; drop it', name)
    FROM indexed WHERE is_unique AND columns <> ARRAY['sequence']
    UNION ALL
    SELECT 42, true, format('the foreign key %I can refuse a message, or wait for another table''s rows; drop it', conname)
    FROM pg_constraint JOIN messages ON messages.oid = conrelid WHERE contype = 'f'
    UNION ALL
    SELECT 43, true, format('the check %I can refuse a message that is within the limits; drop it', conname)
    FROM pg_constraint JOIN messages ON messages.oid = conrelid
    WHERE contype = 'c' AND pg_get_constraintdef(pg_constraint.oid) !~ '^CHECK \(\(+(state = ANY|lease_token IS NULL)'
    UNION ALL
    SELECT 45, is_needed, format('no index begins with (%s), of all rows or%s: %s; run the text of messages_ddl',
        array_to_string(needed_index.columns, ', '), coalesce(' where ' || needed_index.predicate, ' none less'), cost)
    FROM needed_index
    CROSS JOIN messages
    WHERE relkind = 'r' AND NOT EXISTS (
        SELECT FROM indexed
        WHERE is_good AND indexed.columns[1:cardinality(needed_index.columns)] = needed_index.columns
          AND (indexed.predicate IS NULL OR indexed.predicate = needed_index.predicate))

    -- The rights of this role
    UNION ALL
    SELECT 50, true, format('the role %I has no USAGE on the schema %I; see the text of message_grants', current_user, $1)
    FROM messages WHERE NOT has_schema_privilege(relnamespace, 'USAGE')
    UNION ALL
    SELECT 51, true, format('the role %I may not SELECT the column %s; see the text of message_grants', current_user, name)
    FROM actual WHERE NOT has_column_privilege(attrelid, attnum, 'SELECT')
    UNION ALL
    SELECT 52, true, format('the role %I may not INSERT the column %s; see the text of message_grants', current_user, name)
    FROM actual WHERE inserted AND NOT has_column_privilege(attrelid, attnum, 'INSERT')
    UNION ALL
    SELECT 53, true, format('the role %I may not UPDATE the column %s; see the text of message_grants', current_user, name)
    FROM actual WHERE updated AND NOT has_column_privilege(attrelid, attnum, 'UPDATE')

    -- The version, kept in the table's comment
    UNION ALL
    SELECT 60, version IS NOT NULL AND version > $5::int,
           CASE WHEN version IS NULL THEN
               format('the table''s comment names no version of the schema; if it is the table of kept messages, set it to ''inbox messages schema %s''', $5::int)
           WHEN version > $5::int THEN
               format('the table is of version %s, this library knows versions up to %s; use a newer library', version, $5::int)
           ELSE
               format('the table is of version %s, this library makes version %s; migrate it', version, $5::int)
           END
    FROM (SELECT substring(obj_description(oid, 'pg_class') FROM '^inbox messages schema ([0-9]{1,6})$')::int AS version
          FROM messages) AS comment
    WHERE version IS DISTINCT FROM $5::int
)
SELECT refused, text FROM finding ORDER BY place, text
