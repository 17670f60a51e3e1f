-- Claims idempotency keys of a task for p_seconds: the first job that brings a key has it, later ones are told that
-- job's id. A step of the store's clock within the last day makes no key older (shown_since). Call in the statement's
-- transaction that sends. Returns, for each key in order, the id that holds it.
create or replace function engine.keyed(p_task text, p_keys text[], p_ids uuid[], p_seconds integer)
returns setof uuid language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  insert into sluice.idempotency as i (task, key, job, expires_at)
  select distinct on (u.key) p_task, u.key, u.id, v_now + make_interval(secs => p_seconds)
  from unnest(p_keys, p_ids) with ordinality u (key, id, ord) where u.key is not null order by u.key, u.ord
  on conflict (task, key) do update set job = excluded.job, expires_at = excluded.expires_at
  where i.expires_at <= engine.shown_since(86400000, null);
  return query select coalesce(i.job, u.id) from unnest(p_keys, p_ids) with ordinality u (key, id, ord)
    left join sluice.idempotency i on i.task = p_task and i.key = u.key order by u.ord;
end $$;
