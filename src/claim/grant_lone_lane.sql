-- Grants jobs of a lane that is alone, as far as its buckets have room: marks the jobs and charges the buckets. Where
-- the buckets have less than is wanted now, it grants for the next instants at which they have room, too
-- (`engine.plan_instants`). The caller has locked the buckets.
-- p_claim, p_worker, p_want, p_ahead: as in `engine.claim_jobs`
-- p_now, p_avail, p_life, p_rooms, p_held: what `engine.read_claim_room` returned
-- take: how many jobs were to be granted; filled: no more were wanted
-- granted, jobs: as in `engine.claim_jobs`
-- move: what became of the lane's jobs
create or replace function engine.grant_lone_lane(
  p_claim uuid, p_worker bigint, p_lane sluice.lane, p_want integer, p_ahead integer, p_now bigint, p_avail bigint[],
  p_life bigint[], p_rooms engine.room[], p_held boolean,
  out take integer, out filled boolean, out granted integer, out jobs text, out move engine.move)
language plpgsql as $$
declare
  v_times bigint[];
  v_claims uuid[];
  v_of integer[];
  v_life bigint; v_each bigint;
  v_until constant bigint := p_now + engine.grant_horizon_us();
  v_waiting integer;  -- about how many jobs there are, so that no more grants are planned
  v_marked record;
  v_units bigint[];
begin
  take := p_want; granted := 0;
  foreach v_each in array p_life loop v_life := least(v_life, v_each); end loop;
  foreach v_each in array p_avail loop take := least(take, v_each); end loop;
  take := greatest(0, take); filled := take = p_want;
  v_times := array_fill(p_now, array[take]);
  if not filled and p_ahead > 0 and not p_held
    and not exists (select 1 from unnest(p_rooms) r where r.next > v_until)
    and not exists (select 1 from sluice.limit_def d where d.lend_us is not null)
  then
    v_waiting := (select count(*) from (
      select 1 from sluice.job j
      where j.lane = p_lane.id and j.seq >= p_lane.bound and j.claim is null and j.due_at is null
      order by j.seq limit p_want + p_ahead + 1) j);
    select p.times, p.rooms, p.of into v_times, p_rooms, v_of
    from engine.plan_instants(p_rooms, p_now, v_until, least(p_want, v_waiting), least(p_ahead, v_waiting)) p;
    take := cardinality(v_times); filled := take = p_want + p_ahead;
  end if;
  if take = 0 then return; end if;
  v_claims := engine.claims_of_instants(p_claim, v_times);
  select * into v_marked from engine.mark_lane_jobs(p_worker, p_now, p_lane, v_times, v_claims, v_life) d;
  granted := v_marked.granted; jobs := v_marked.jobs; move := v_marked.moves[1];
  if granted = 0 then return; end if;
  if v_of is null then
    perform engine.append_ledger(p_rooms, p_claim, u, u)
    from array_fill(granted::bigint, array[cardinality(p_rooms)]) u;
    return;
  end if;
  -- The claim, and the number of jobs, of each row; jobs that had expired are not charged.
  select array_agg(c.of order by r.o), array_agg(c.units order by r.o) into v_claims, v_units
  from unnest(v_of) with ordinality r (i, o)
  join (select k.of, row_number() over (order by k.first) as n,
          (select count(*) from unnest(v_marked.of) m where m = k.of) as units
        from (select c as of, min(o) as first from unnest(v_claims) with ordinality u (c, o) group by 1) k) c
    on c.n = r.i;
  perform engine.append_ledger(array(select r from unnest(p_rooms) r where v_units[r.ord] > 0), null, v_units, v_units,
    p_claims => v_claims);
end $$;
