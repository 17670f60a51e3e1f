-- Fails with 40001 (could not serialize access) when one of these ids is in history, but invisible: it finished after
-- the snapshot that a repeatable read or serializable transaction has from its begin to its end. No query sees such a
-- row; only a unique index does, so rows are inserted for a moment. Whoever uses these levels repeats on 40001 anyway.
create or replace function engine.unseen(p_ids uuid[]) returns void language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  insert into sluice.done (id, state, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, finished_at)
  select id, 'probe', '', '', 0, 0, 0, 0, false, v_now, v_now from unnest(p_ids) id on conflict (id) do nothing;
  insert into sluice.failed (id, state, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, finished_at)
  select id, 'probe', '', '', 0, 0, 0, 0, false, v_now, v_now from unnest(p_ids) id on conflict (id) do nothing;
  raise exception 'nothing unseen' using errcode = 'SLW02';
exception when sqlstate 'SLW02' then null;
end $$;
