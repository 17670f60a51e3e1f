-- Locks a worker for a claim, and reads in one query what the claim has to know about the worker and the store. Raises
-- SLW01 when the worker was given up. With the lock, a rescue of the worker has ended, or waits for the end of this
-- transaction: so it misses no claim.
-- labels, queues: of the worker
-- tasks: p_tasks, if the worker has other tasks, too; else null
-- clock_offset_us, watched: of sluice.epoch
-- known: this claim was carried out already
-- gates, pools: whether there are any
-- stores: how many stores have limits in the Redis of this one; null: none is there
-- restarted: the server has started since the store was last checked
-- due_us: when the first job is due that is scheduled after p_since, in the limiter's time; null: there is none
create or replace function engine.assert_worker(
  p_claim uuid, p_worker bigint, p_tasks text[], p_since bigint,
  out labels jsonb, out queues text[], out tasks text[], out clock_offset_us bigint, out watched boolean,
  out known boolean, out gates boolean, out pools boolean, out stores integer, out restarted boolean, out due_us bigint)
language plpgsql as $$
declare
  -- An expression is cheaper than PERFORM, which starts a query.
  v_locked constant boolean :=
    pg_advisory_xact_lock_shared(1397511525, (p_worker & 2147483647)::integer) is not null;  -- lock: worker
begin
  select w.labels, w.queues, case when w.tasks <> p_tasks then p_tasks end, e.clock_offset_us, e.watched,
         exists (select 1 from sluice.claim c where c.id = p_claim),
         exists (select 1 from sluice.gate),
         exists (select 1 from sluice.limit_def d where d.members is not null),
         (select s.stores from sluice.shared s),
         e.server_at is distinct from pg_postmaster_start_time(),
         e.clock_offset_us + (select (extract(epoch from min(j.due_at)) * 1000000)::bigint from sluice.job j
           where j.due_at > case when p_since < 0 then '-infinity'
             else to_timestamp((p_since - e.clock_offset_us) / 1e6) end
             and j.due_at < '9999-01-01')  -- a later one is parked, or never due
  into labels, queues, tasks, clock_offset_us, watched, known, gates, pools, stores, restarted, due_us
  from sluice.epoch e left join sluice.worker w on w.id = p_worker;
  if labels is null then raise exception 'worker % was given up', p_worker using errcode = 'SLW01'; end if;
end $$;
