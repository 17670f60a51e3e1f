-- What a worker is told of a job but input and tags, as places of a JSON array without its brackets (claim/claimed-job.ts names
-- them). p_life: of its grants. p_same: the one told before it is of the same lane: then of an ordinary job only what differs. So order is the caller's to keep.
-- Admission: 2 nobody has looked at its task's code, 1 it has met no rules, 0 it has, or the rules' own record where they gave
-- it other keys. One expression, put in place of the call by the planner, and asked where the row is at hand (RETURNING): rows
-- carried through a plan as a whole, or checked to be JSON, cost twice as much as all of this. The time is a whole number, for
-- what is none must fail here, where it is found (probe.sql), and not the reader of the answer.
create or replace function engine.hand(p_job sluice.job, p_life bigint, p_same boolean) returns text language sql stable as $$
  select case
    when p_same and p_job.failed = 0 and p_job.crashes = 0 and not p_job.ambiguous and p_job.raw is null and p_job.ruled is null
      and p_job.costs is null and p_job.holds is null then
      p_job.seq || ',"' || p_job.id || '",' || p_job.attempt || ',' || floor(date_part('epoch', p_job.created_at) * 1000)::bigint
    else
      p_job.seq || ',"' || p_job.id || '",' || p_job.attempt || ',' || floor(date_part('epoch', p_job.created_at) * 1000)::bigint || ','
      || to_json(p_job.task) || ',' || to_json(p_job.queue) || ',' || p_job.failed || ',' || p_job.crashes
      || case when p_job.ambiguous then ',true,' else ',false,' end || p_job.priority || ',' || coalesce(to_json(p_job.takes)::text, 'null') || ','
      || case when p_job.raw then '2' when p_job.ruled is null then '1' when p_job.ruled @? '$[*].keys' then p_job.ruled::text else '0' end
      || ',' || coalesce(to_json(p_job.costs)::text, 'null') || ',' || coalesce(p_life::text, 'null')
      || ',' || coalesce(to_json(p_job.holds)::text, 'null') end
$$;
