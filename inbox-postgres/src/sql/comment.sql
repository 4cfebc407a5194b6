-- The comment of a table, if there is one of that name. $1 schema, $2 table.
SELECT obj_description(pg_class.oid, 'pg_class')
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname = $2
