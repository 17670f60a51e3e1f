-- Returns in how many microseconds buckets that denied a grant can have room for it. 2^53 - 1: not by time.
-- p_needs, p_places: units and places that must be free in each bucket.
-- p_is_job: as in `engine.bucket_room`.
create or replace function engine.soonest_room(
  p_buckets bigint[], p_needs bigint[], p_places bigint[], p_is_job boolean, p_now bigint) returns bigint
language plpgsql as $$
declare
  v_next bigint;
begin
  -- Only buckets that lack room count, because the others may name a later time. If no bucket lacks room, all count,
  -- because a bucket on hold denies even a request that costs nothing.
  v_next := (
    select coalesce(max(r.next) filter (where r.units < p_needs[r.ord] or r.places < p_places[r.ord]), max(r.next))
    from unnest(engine.bucket_room(p_buckets, p_now, p_is_job, p_needs, not p_is_job)) r);
  return case when v_next < 9007199254740991 then greatest(v_next - p_now, 1) else v_next end;
end $$;
