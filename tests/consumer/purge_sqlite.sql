DELETE FROM main.inbox
WHERE (consumer, message_id) IN (
    SELECT consumer, message_id FROM main.inbox
    WHERE registered_at < (strftime('%s', 'now') - 90 * 86400) * 1000000 -- microseconds since 1970
    LIMIT 1000
);
