-- Returns the buckets in which jobs of these lanes need room: for labels those of this worker, for pools the members. A
-- lane that has no row yet has them in its first job. A bucket that was never used has no row, and no data that could
-- fail.
create or replace function engine.find_suspect_buckets(p_rehearsal engine.rehearsal, p_lanes bigint[])
returns bigint[] language plpgsql as $$
declare
  v_named bigint[];
  v_real record;
begin
  v_named := array(
    select unnest(l.buckets) from unnest(p_lanes) u (id) join sluice.lane l on l.id = u.id
    union
    select sluice.hash64(t) from unnest(p_lanes) u (id) cross join lateral (
      select j.buckets from sluice.job j
        where j.lane = u.id and j.due_at is null order by j.seq limit 1) j, unnest(j.buckets) t);
  select * into v_real from engine.resolve_buckets(p_rehearsal.worker, array[p_rehearsal.class], v_named);
  return array(
    select b.id from sluice.bucket b
      where b.id = any (v_real.buckets || v_real.members) and b.parked is null
        and b.id <> sluice.hash64(b.name || '*') order by b.id);
end $$;
