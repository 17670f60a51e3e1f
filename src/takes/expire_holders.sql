-- Gives up processes that hold places and whose lease has expired, so that their places are free again, and deletes
-- takers that died in a line.
-- p_cap: null: the clock may just have stepped, so no process is given up.
-- Returns true if there may be more of them.
create or replace function engine.expire_holders(p_cap bigint) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now bigint := engine.limiter_now_us(p_cap);
  v_bucket bigint;
  v_vacant bigint[];
begin
  if not pg_try_advisory_xact_lock(1397511523, -13) then return false; end if;  -- lock: holders
  delete from sluice.taker where ctid = any (array(
    select ctid from sluice.taker
      where alive_until < v_now - 60000000 order by alive_until limit 1000 for update skip locked));
  if p_cap is null or not exists (select 1 from sluice.holder where alive_until <= v_now) then return false; end if;
  v_bucket := (select l.bucket
    from sluice.lease l
      join sluice.holder h on h.id = l.holder where h.alive_until <= v_now limit 1);
  if v_bucket is null then
    delete from sluice.holder h
      where h.alive_until < v_now - 60000000 and not exists (select 1 from sluice.lease l where l.holder = h.id);
    return false;
  end if;
  -- One bucket a call, because a second one in the same transaction might be locked out of order.
  perform engine.lock_buckets_and_pools(array[v_bucket]);
  v_vacant := engine.vacate_places(array[v_bucket], v_now);
  if v_vacant is null then return false; end if;
  perform engine.make_lists_due(v_vacant, array_fill(1::bigint, array[cardinality(v_vacant)]), v_now);
  return true;
end $$;
