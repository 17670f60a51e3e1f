-- What the lane in front of a list (of a bucket) needs of it for its next job (null: one unit), and that lane, if the bucket
-- is to be kept for it: it needs more than one, and no other bucket is in its way. p_was: the lane that the bucket was kept
-- for stays in front for as long as it waits there, so that newcomers cannot pass it again and again.
create or replace function engine.holder(
  p_class bigint, p_list bigint, p_floor bigint, p_was bigint, p_now bigint, out lane bigint, out need bigint)
language plpgsql stable as $$
declare
  v_lane sluice.lane;
  v_costs integer[];
begin
  select * into v_lane from sluice.lane l where l.id = p_was order by l.v desc limit 1;
  if v_lane.list is distinct from p_list then
    v_lane := engine.foremost(p_class, p_list, p_floor);
  end if;
  if v_lane.costed is not true then return; end if;
  select j.costs into v_costs from sluice.job j
  where j.lane = v_lane.id and j.seq >= v_lane.bound and j.claim is null and j.due_at is null order by j.seq limit 1;
  need := v_costs[array_position(v_lane.buckets, p_list)];
  if need > 1 and not exists (
    select 1 from engine.room(v_lane.buckets, p_now) r
    -- A label's is not known here, and has no row under this name.
    where r.bucket <> p_list and (r.units < greatest(v_costs[r.ord], 1) or r.places < 1)
      and exists (select 1 from sluice.bucket b where b.id = r.bucket offset 0)) then lane := v_lane.id; end if;
end $$;
