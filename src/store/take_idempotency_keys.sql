-- Reserves idempotency keys of a task: the first job that brings a key gets it, and a later job gets that job's id
-- instead of its own. Must run in the transaction that inserts the jobs. A step of the store's clock within the last
-- day does not make a key older (`engine.earliest_store_time`).
-- p_keys: the keys, one for each job; null: the job has none.
-- p_ids: the ids of these jobs.
-- p_seconds: how long the keys are kept.
-- Returns the id of the job that has the key, for each key in order.
create or replace function engine.take_idempotency_keys(p_task text, p_keys text[], p_ids uuid[], p_seconds integer)
returns setof uuid language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  insert into sluice.idempotency as i (task, key, job, expires_at)
  select distinct on (u.key) p_task, u.key, u.id, v_now + make_interval(secs => p_seconds)
  from unnest(p_keys, p_ids) with ordinality u (key, id, ord) where u.key is not null order by u.key, u.ord
  on conflict (task, key) do update set job = excluded.job, expires_at = excluded.expires_at
  where i.expires_at <= engine.earliest_store_time(86400000, null);
  return query select coalesce(i.job, u.id) from unnest(p_keys, p_ids) with ordinality u (key, id, ord)
    left join sluice.idempotency i on i.task = p_task and i.key = u.key order by u.ord;
end $$;
