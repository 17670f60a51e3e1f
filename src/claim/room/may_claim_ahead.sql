-- Returns whether jobs of this lane may be granted ahead of time (`engine.grant_ahead`): its jobs have one bucket, and
-- nobody else waits for it. Others would find it without room each time.
-- p_now: the limiter's clock, in microseconds
create or replace function engine.may_claim_ahead(p_lane sluice.lane, p_now bigint) returns boolean
language plpgsql stable as $$
begin
  return cardinality(p_lane.buckets) = 1
    and not exists (select 1 from sluice.list l where l.id = p_lane.buckets[1] and l.class <> p_lane.class)
    and not exists (select 1 from sluice.reservation r where r.bucket = p_lane.buckets[1])
    and not exists (select 1 from sluice.taker t where t.bucket = p_lane.buckets[1] and t.alive_until > p_now);
end $$;
