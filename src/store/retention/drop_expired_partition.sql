-- Drops the oldest partition of history whose retention is over (`engine.find_droppable_partitions`). It checks again
-- under the lock, because a job of that day may have finished in between. It locks the parent before the partition, in
-- the order in which a finish locks them, and gives up after 200 ms until the next round, so that finishes do not queue
-- behind a lock that waits for a long query.
-- p_done_ms, p_failed_ms: how long finished and failed jobs are kept.
-- more: the name of the dropped partition; null when none was dropped.
-- rows, bytes: its size, as in `engine.table_size`.
create or replace function engine.drop_expired_partition(
  p_done_ms bigint, p_failed_ms bigint, p_cap bigint, out more text, out rows bigint, out bytes bigint)
language plpgsql set lock_timeout = '200ms' set enable_seqscan = off set jit = off as $$
declare
  v_old record;
  v_young boolean;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;  -- lock: old rows
  select * into v_old from engine.find_droppable_partitions(p_done_ms, p_failed_ms, p_cap) limit 1;
  if v_old.name is null then return; end if;
  select v.rows, v.bytes into rows, bytes from engine.table_size(format('sluice.%I', v_old.name)::regclass) v;
  execute format('lock table only sluice.%I in access exclusive mode', v_old.parent);
  execute format('lock table sluice.%I in access exclusive mode', v_old.name);
  execute format('select exists (select 1 from sluice.%I where finished_at >= $1)', v_old.name)
    into v_young using v_old.before;
  if v_young then return; end if;
  execute format('drop table sluice.%I', v_old.name);
  more := v_old.name;
exception when lock_not_available then return;
end $$;
