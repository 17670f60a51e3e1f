-- Releases a parked bucket: claims compute with its data again, and lanes that wait for it are looked at. Returns false
-- when it is not parked. It makes up for what the bucket missed: places are counted again, units that attempts used
-- beyond their grants are charged, and a hold that a vendor requested goes on. Units that were to be given back
-- meanwhile stay charged. If this fails by data, the bucket is parked again.
create or replace function engine.release_bucket(p_bucket bigint) returns boolean language plpgsql as $$
declare
  v_name text := (select b.name from sluice.bucket b where b.id = p_bucket);
  v_one sluice.parked;
  v_now bigint;
begin
  -- No attempt may end while running jobs are counted.
  perform pg_advisory_xact_lock(1397511523, -7);  -- lock: definitions
  perform engine.lock_buckets_and_pools(array[p_bucket]);
  update sluice.bucket b set parked = null where b.id = p_bucket and b.parked;
  if not found then return false; end if;
  select p.* into v_one from sluice.parked p where p.kind = 'bucket' and p.id = p_bucket;
  v_now := engine.limiter_now_us();
  begin
    perform engine.recount_places(v_name, p_bucket);
    if v_one.used > 0 then perform engine.charge_overrun(p_bucket, null, v_one.used, v_now); end if;
    if v_one.hold > v_now then perform engine.hold_buckets(array[p_bucket], v_one.hold - v_now, null); end if;
  exception when data_exception or integrity_constraint_violation or assert_failure then
    perform engine.park_bucket(row(p_bucket, sqlstate, sqlerrm)::engine.fault);
    return true;
  end;
  update sluice.list l set due = v_now where l.due > v_now and l.id <> 0 and l.id in (
    select b.id from sluice.bucket b where b.name = v_name and (b.id = p_bucket or b.key = '*'));
  perform engine.notify_takers(array[p_bucket], v_now);
  return true;
end $$;
