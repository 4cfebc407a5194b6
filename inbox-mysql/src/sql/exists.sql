-- Whether the database is there, and in it anything of the table's name. No rights, no sight: an
-- account that may create neither does not see them either, and its CREATE fails.
SELECT EXISTS (SELECT 1 FROM information_schema.schemata WHERE schema_name = '{schema}'),
       EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = '{schema}' AND table_name = '{table}')
