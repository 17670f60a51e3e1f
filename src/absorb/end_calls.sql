-- Records that the results of these calls are sent. Returns those that nobody had sent.
-- $1 Celery's ids
update sluice.celery_call set replied_at = sluice.now() where id = any ($1::text[]) and replied_at is null returning id
