-- One job, wherever it is: unfinished, done or in the archive of failures.
-- $1 id
select j.id, case when j.claim is not null then 'running' when j.due_at is not null then 'scheduled' else 'waiting' end as state,
       null as reason, j.task, j.queue, j.priority, j.attempt, j.failed, j.crashes, j.ambiguous, j.created_at, j.due_at,
       j.dispatched_at, j.dispatched_at as started_at, null::timestamptz as finished_at, j.takes, j.tags, j.input, null::jsonb as result, j.error,
       coalesce(j.weight, 1) as weight, j.expires_at, j.ruled
from sluice.job j where j.id = $1
union all
select id, state, reason, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, null,
       dispatched_at, started_at, finished_at, takes, tags, input, result, error,
       coalesce(weight, 1), null, ruled
from sluice.done where id = $1
union all
select id, state, reason, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, null,
       dispatched_at, started_at, finished_at, takes, tags, input, result, error,
       coalesce(weight, 1), null, ruled
from sluice.failed where id = $1
limit 1
