-- Takes the places of buckets from processes whose lease has expired. Such a process has lost its places for good: its
-- next renewal returns that. Jobs and takers that wait for the places are woken, because the one that called this may
-- not have the turn. The caller has locked the buckets. Returns the number of places.
create or replace function engine.vacate(p_buckets bigint[], p_now bigint) returns integer language plpgsql as $$
declare
  v_grants uuid[];
  v_buckets bigint[];
begin
  -- Marked before anything is taken: a process that renews just now waits for this row, and finds itself given up.
  update sluice.holder set alive_until = 0 where id = any (array(
    select id from sluice.holder where alive_until between 1 and p_now for update skip locked));
  select array_agg(l.id), array_agg(l.bucket) into v_grants, v_buckets
  from sluice.lease l join sluice.holder h on h.id = l.holder where h.alive_until = 0 and l.bucket = any (p_buckets);
  if v_grants is null then return 0; end if;
  perform engine.give_back(v_grants, v_buckets, null);
  perform engine.sooner(v_buckets, array_fill(1::bigint, array[cardinality(v_buckets)]), p_now);
  return cardinality(v_grants);
end $$;
