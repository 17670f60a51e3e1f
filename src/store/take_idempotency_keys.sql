-- Reserves idempotency keys of a task: the first job that brings a key gets it, and a later job gets that job's id
-- instead of its own. Must run in the transaction that inserts the jobs. A step of the store's clock within the last
-- day does not make a key older (`engine.earliest_store_time`). The keys of all names of a task are the same: they are
-- recorded under its present name, which gets those that were recorded before it was renamed.
-- p_keys: the keys, one for each job; null: the job has none.
-- p_ids: the ids of these jobs.
-- p_seconds: how long the keys are kept.
-- Returns the id of the job that has the key, for each key in order.
create or replace function engine.take_idempotency_keys(p_task text, p_keys text[], p_ids uuid[], p_seconds integer)
returns setof uuid language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_over timestamptz := engine.earliest_store_time(86400000, null);
  v_task text := coalesce((select t.currently from sluice.task t where t.name = p_task), p_task);
  v_former text[] := array(select t.name from sluice.task t where t.currently = v_task);
begin
  insert into sluice.idempotency as i (task, key, job, expires_at)
  select distinct on (u.key) v_task, u.key, coalesce(f.job, u.id),
         coalesce(f.expires_at, v_now + make_interval(secs => p_seconds))
  from unnest(p_keys, p_ids) with ordinality u (key, id, ord)
  left join lateral (
    select o.job, o.expires_at from sluice.idempotency o
    where o.task = any (v_former) and o.key = u.key and o.expires_at > v_over order by o.expires_at limit 1) f on true
  where u.key is not null order by u.key, u.ord
  on conflict (task, key) do update set job = excluded.job, expires_at = excluded.expires_at
  where i.expires_at <= v_over;
  return query select coalesce(i.job, u.id) from unnest(p_keys, p_ids) with ordinality u (key, id, ord)
    left join sluice.idempotency i on i.task = v_task and i.key = u.key order by u.ord;
end $$;
