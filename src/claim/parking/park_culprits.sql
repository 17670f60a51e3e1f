-- Finds what data made a claim of this worker fail, parks them, so that claims go on without them, and returns their
-- names. It parks in one class only, because a further class's lock would come before the locks of this class's
-- buckets. It repeats what a claim does, by classes, buckets, lanes and jobs, under a claim's locks, and rolls it back
-- (`engine.rehearse_claim`). Call outside of claims.
-- p_tasks, p_want: of the claim that failed
create or replace function engine.park_culprits(p_worker bigint, p_tasks text[], p_want integer, p_cap bigint)
returns text[] language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off set lock_timeout = '1s' as $$
declare
  v_rehearsal engine.rehearsal;
  v_queues text[];
  v_class bigint;
  v_parked text[];
begin
  v_rehearsal.worker := p_worker;
  select w.labels, w.queues into v_rehearsal.labels, v_queues from sluice.worker w where w.id = p_worker;
  v_rehearsal.want := p_want;
  v_rehearsal.cap := p_cap;
  for v_class in
    select c from engine.find_classes(v_queues, p_tasks, v_rehearsal.labels, engine.limiter_now_us(p_cap), -1) f,
      unnest(f.active) c
    where c <> 0 order by random()
  loop
    v_rehearsal.class := v_class;
    begin
      -- The rollback of the rehearsal also releases the lock of a class that does not fail.
      continue when engine.rehearse_claim(v_rehearsal, 'class', null) is null;
      v_parked := engine.park_class_culprits(v_rehearsal);
      -- A class in which no culprit was found is released, too: the next class may come before it in the order of
      -- locks.
      if v_parked = '{}' then raise exception using errcode = 'SLW00'; end if;
    exception when others or assert_failure then v_parked := '{}';
    end;
    if v_parked <> '{}' then return v_parked; end if;
  end loop;
  return '{}';
end $$;
