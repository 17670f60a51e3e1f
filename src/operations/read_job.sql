-- Reads one job from wherever it is: unfinished, done or failed.
-- $1 the job's id
select j.id,
       engine.state_of_job(j) as state,
       engine.read_scheduled_reason(j) as reason, j.task, j.queue, j.priority,
       j.attempt - engine.is_granted_ahead(j)::integer as attempt, j.failed, j.throttled, j.crashes, j.ambiguous,
       engine.unix_ms(j.created_at) as created_ms, engine.unix_ms(engine.scheduled_until(j)) as due_ms,
       engine.unix_ms(j.dispatched_at) as dispatched_ms,
       case when not engine.is_granted_ahead(j) then engine.unix_ms(j.dispatched_at) end as started_ms,
       null::float8 as finished_ms, j.buckets, j.tags, j.input, null::jsonb as result, j.error,
       coalesce(j.weight, 1) as weight, engine.unix_ms(j.expires_at) as expires_ms, j.ruled,
       engine.find_parked_causes(j) as parked, j.costs, j.charged_buckets, to_json(j.attempts) as attempts, j.notes,
       case when w.id is not null then
         json_build_object('id', w.id::text, 'host', w.host, 'pid', w.pid, 'version', w.version) end as worker
from sluice.job j left join sluice.claim c on c.id = j.claim left join sluice.worker w on w.id = c.worker
where j.id = $1
union all
select h.id, h.state, h.reason, h.task, h.queue, h.priority, h.attempt, h.failed, h.throttled, h.crashes,
       h.ambiguous,
       engine.unix_ms(h.created_at), null, engine.unix_ms(h.dispatched_at), engine.unix_ms(h.started_at),
       engine.unix_ms(h.finished_at), h.buckets, h.tags, h.input, h.result, h.error,
       coalesce(h.weight, 1), null, h.ruled, null, h.costs, null, to_json(h.attempts), h.notes, null
from (select * from sluice.done where id = $1 union all select * from sluice.failed where id = $1) h
limit 1
