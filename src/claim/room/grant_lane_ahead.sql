-- Grants jobs of a lone lane ahead of time (`engine.grant_ahead`) if they have one bucket and nobody else waits for it:
-- others would find it without room each time.
-- p_room: the bucket, as `engine.bucket_room` returned it
-- p_take: how many jobs of the claim may begin now
-- p_now: the limiter's clock, in microseconds
-- p_ahead: as in `engine.claim_jobs`. A worker for which it is 0, and that gets nothing because of others' grants
-- ahead, stops these (`engine.stop_grants_ahead`). Jobs that run at most once are not granted ahead: when a worker is
-- killed, all that it had claimed would end as doubtful.
-- room, instants: as in `engine.grant_ahead`; instants is null as well if others wait
create or replace function engine.grant_lane_ahead(
  p_lane sluice.lane, p_room engine.room, p_take integer, p_now bigint, p_ahead integer,
  out room engine.room, out instants bigint[]) language plpgsql as $$
declare
  v_grant record;
begin
  if p_ahead = 0 then
    if p_take = 0 and p_room.now_at > p_now then
      perform engine.stop_grants_ahead(p_lane.buckets, p_now + 30000000); end if;
    return;
  end if;
  if cardinality(p_lane.buckets) <> 1
    or exists (select 1 from sluice.class c join sluice.task t on t.name = c.task where c.id = p_lane.class and t.once)
    or exists (select 1 from sluice.list l where l.id = p_lane.buckets[1] and l.class <> p_lane.class)
    or exists (select 1 from sluice.reservation r where r.bucket = p_lane.buckets[1])
    or exists (select 1 from sluice.taker t where t.bucket = p_lane.buckets[1] and t.alive_until > p_now) then return;
  end if;
  v_grant := engine.grant_ahead(p_room, p_ahead, p_now);
  room := v_grant.room; instants := v_grant.instants;
end $$;
