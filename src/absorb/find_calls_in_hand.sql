-- Returns calls that have no result yet, for `celery inspect`: at most 1,000.
-- $1 `active` (an attempt runs in this process), `reserved` (the job waits) or `scheduled` (it is not due yet)
-- $2 the process's host, $3 its pid
select c.id, c.call::text, j.task, j.input::text, j.priority, j.due_at, j.dispatched_at
from sluice.celery_call c join sluice.job j on j.id = c.job
where c.replied_at is null and case $1::text
  when 'active' then j.claim in (
    select h.id from sluice.claim h join sluice.worker w on w.id = h.worker
    where w.host = $2::text and w.pid = $3::integer)
    and engine.state_of_job(j) = 'running'
  when 'scheduled' then engine.state_of_job(j) = 'scheduled'
  else engine.state_of_job(j) in ('waiting', 'dispatched') end
order by c.n limit 1000
