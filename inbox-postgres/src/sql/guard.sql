-- Fails unless the transaction still holds every registration made under its guard. A cast that
-- fails needs no function of ours, and its text tells the server's log what happened.
SELECT (CASE held WHEN '{expected}' THEN '1' ELSE
    'inbox: the transaction holds ' || held || ' of the {expected} registrations made in it' END)::int
FROM (SELECT coalesce(nullif(current_setting('{setting}', true), ''), '0')) AS guard (held)
