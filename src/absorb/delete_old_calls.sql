-- Deletes calls whose results were sent so long ago that no broker delivers them again; at most 5,000.
-- $1 days
delete from sluice.celery_call where id = any (array(
  select c.id from sluice.celery_call c where c.replied_at < sluice.now() - $1::integer * interval '1 day' limit 5000))
