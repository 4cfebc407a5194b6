-- Whether the schema is there, and in it anything of the table's name. $1 schema, $2 table.
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
       EXISTS (SELECT
               FROM pg_class
               JOIN pg_namespace ON pg_namespace.oid = relnamespace
               WHERE nspname = $1 AND relname = $2)
