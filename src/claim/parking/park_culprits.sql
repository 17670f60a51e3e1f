-- Finds out by whose data a claim of this worker has failed, and parks that, so that claims go on without it. Returns
-- the names of what it parked: of one class, because the next class's lock comes before this one's buckets. Outside of
-- claims: everything that a claim does is tried under its locks, by classes, buckets, lanes and jobs, and rolled back
-- (probe.sql).
-- p_worker, p_queues, p_tasks, p_want, p_cap: as of the claim
create or replace function engine.park_culprits(
  p_worker bigint, p_queues text[], p_tasks text[], p_want integer, p_cap bigint)
returns text[] language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off set lock_timeout = '1s' as $$
declare
  v_trial engine.trial;
  v_class bigint;
  v_parked text[];
begin
  v_trial.worker := p_worker;
  v_trial.labels := (select w.labels from sluice.worker w where w.id = p_worker);
  v_trial.want := p_want;
  v_trial.cap := p_cap;
  -- What the claim has learned was rolled back with it.
  perform engine.learn_classes();
  for v_class in
    select c from engine.find_classes(p_queues, p_tasks, v_trial.labels, engine.limiter_us(p_cap), -1) f,
      unnest(f.active) c
    where c <> 0 order by random()
  loop
    v_trial.class := v_class;
    begin
      -- A class that does not fail is not locked any more after this.
      continue when engine.probe(v_trial, 'class', null) is null;
      v_parked := engine.park_in_class(v_trial);
      -- Nor is one that fails by none of these: the next class may come before it in the order of locks.
      if v_parked = '{}' then raise exception using errcode = 'SLW00'; end if;
    exception when others or assert_failure then v_parked := '{}';
    end;
    if v_parked <> '{}' then return v_parked; end if;
  end loop;
  return '{}';
end $$;
