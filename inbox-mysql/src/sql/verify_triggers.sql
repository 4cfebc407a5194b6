    UNION ALL
    -- On MySQL only: MariaDB shows a table's triggers to whoever has a right on the table.
    SELECT 25, FALSE, CONCAT('the account ', CURRENT_USER(), ' has no right to see triggers, and one could change or refuse a registration; look once with an account that has TRIGGER, such as the owner''s')
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
