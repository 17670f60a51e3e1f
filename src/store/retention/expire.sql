-- Drops one partition of history that is over (outlived). more: its name, null when there is none; rows and bytes as
-- volume has them. It looks again under the lock: a job of that day may have finished in between. Parent before
-- partition, as a finish locks them. Gives up, until the next round, rather than keep finishes waiting behind somebody's
-- long query. p_cap: as of limiter_us.
create or replace function engine.expire(p_done_ms bigint, p_failed_ms bigint, p_cap bigint, out more text, out rows bigint, out bytes bigint)
language plpgsql set lock_timeout = '200ms' set enable_seqscan = off set jit = off as $$
declare
  v_old record;
  v_young boolean;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;
  select * into v_old from engine.outlived(p_done_ms, p_failed_ms, p_cap) limit 1;
  if v_old.name is null then return; end if;
  select v.rows, v.bytes into rows, bytes from engine.volume(format('sluice.%I', v_old.name)::regclass) v;
  execute format('lock table only sluice.%I in access exclusive mode', v_old.parent);
  execute format('lock table sluice.%I in access exclusive mode', v_old.name);
  execute format('select exists (select 1 from sluice.%I where finished_at >= $1)', v_old.name) into v_young using v_old.before;
  if v_young then return; end if;
  execute format('drop table sluice.%I', v_old.name);
  more := v_old.name;
exception when lock_not_available then return;
end $$;
