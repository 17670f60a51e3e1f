-- The buckets that jobs of these lanes need room in, as this worker meets them: of labels its own, of pools the
-- members. Those of lanes that are not made yet stand in their first jobs. One that was never used has no row, and
-- nothing to fail by.
create or replace function engine.suspect_buckets(p_trial engine.trial, p_lanes bigint[])
returns bigint[] language plpgsql as $$
declare
  v_named bigint[];
  v_real record;
begin
  v_named := array(
    select unnest(l.buckets) from unnest(p_lanes) u (id) join sluice.lane l on l.id = u.id
    union
    select sluice.hash64(t) from unnest(p_lanes) u (id) cross join lateral (
      select j.takes from sluice.job j
        where j.lane = u.id and j.due_at is null order by j.seq limit 1) j, unnest(j.takes) t);
  select * into v_real from engine.resolve(p_trial.worker, array[p_trial.class], v_named);
  return array(
    select b.id from sluice.bucket b
      where b.id = any (v_real.buckets || v_real.members) and b.parked is null and b.key <> '*' order by b.id);
end $$;
