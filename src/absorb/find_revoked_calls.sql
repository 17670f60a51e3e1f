-- Returns the calls that were revoked within three hours, as long as Celery remembers them: at most 1,000.
select c.id from sluice.celery_call c
where c.revoked_at > sluice.now() - interval '3 hours'
order by c.revoked_at desc limit 1000
