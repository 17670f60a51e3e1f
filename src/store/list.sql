-- Newest jobs first, a page at a time.
-- $1 state (null: any unfinished), $2 task (null: any), $3 tag (null: any), $4 only ids before this one (null: from the newest), $5 how many
select * from (
  select j.id, case when j.claim is not null then 'running' when j.due_at is not null then 'scheduled' else 'waiting' end as state,
         null as reason, j.task, j.queue, j.priority, j.attempt, j.created_at, null::timestamptz as finished_at, j.tags, j.error
  from sluice.job j where coalesce($1, 'unfinished') in ('unfinished', 'waiting', 'scheduled', 'running')
    and case coalesce($1, 'unfinished') when 'running' then j.claim is not null when 'scheduled' then j.due_at is not null
        when 'waiting' then j.claim is null and j.due_at is null else true end
  union all
  select id, state, reason, task, queue, priority, attempt, created_at, finished_at, tags, error
  from sluice.done where $1 in ('done', 'cancelled') and state = $1
  union all
  select id, state, reason, task, queue, priority, attempt, created_at, finished_at, tags, error
  from sluice.failed where $1 = 'failed'
) jobs
where ($2::text is null or task = $2) and ($3::text is null or $3 = any (tags)) and ($4::uuid is null or id < $4)
order by id desc limit $5
