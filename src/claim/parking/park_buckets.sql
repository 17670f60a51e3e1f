-- Parks those of these buckets whose data make a claim fail, after such an error was met outside of claims. Returns
-- their names.
-- p_buckets: their names; null: the buckets that rounds of workers read, which are those of running jobs, of leases,
-- and of jobs that expire
create or replace function engine.park_buckets(p_buckets text[])
returns text[] language plpgsql set jit = off set lock_timeout = '1s' as $$
declare
  v_ids bigint[];
  v_bad engine.fault[];
begin
  if p_buckets is not null then
    v_ids := array(select sluice.hash64(t) from unnest(p_buckets) t);
  else
    v_ids := array(
      select h from engine.find_buckets_in_use() h
      union
      select l.bucket from sluice.lease l
      union
      select unnest(l.buckets) from (
        select distinct j.lane from (select e.lane from sluice.job e
          where e.expires_at is not null and e.due_at is null and e.claim is null
                                     order by e.expires_at limit 2000) j) x join sluice.lane l on l.id = x.lane);
  end if;
  v_bad := array(
    select f from engine.find_faults(row(null, null, 1, null, null, null, null)::engine.rehearsal, 'bucket', array(
      select b.id from sluice.bucket b
        where b.id = any (v_ids) and b.parked is null and b.id <> sluice.hash64(b.name || '*') order by b.id)) f);
  -- Locked together, because buckets are locked in one order.
  perform engine.lock_buckets(array(select f.id from unnest(v_bad) f));
  return array(select engine.park_bucket(f) from unnest(v_bad) f);
end $$;
