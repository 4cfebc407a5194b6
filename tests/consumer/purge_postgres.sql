DELETE FROM public.inbox
WHERE (consumer, message_id) IN (
    SELECT consumer, message_id FROM public.inbox
    WHERE registered_at < now() - interval '90 days'
    LIMIT 10000
);
