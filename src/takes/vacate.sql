-- Takes the places of buckets from processes whose lease has expired. Such a process has lost its places for good: its
-- next renewal returns that. Call under lock. Returns the bucket of each place (null: there was none); the caller tells
-- those who wait for them (sooner), because it may not have the turn itself.
create or replace function engine.vacate(p_buckets bigint[], p_now bigint) returns bigint[] language plpgsql as $$
declare
  v_grants uuid[];
  v_buckets bigint[];
begin
  -- Marked before anything is taken: a process that renews just now waits for this row, and finds itself given up.
  update sluice.holder set alive_until = 0 where id = any (array(
    select id from sluice.holder where alive_until between 1 and p_now for update skip locked));
  select array_agg(l.id), array_agg(l.bucket) into v_grants, v_buckets
  from sluice.lease l join sluice.holder h on h.id = l.holder where h.alive_until = 0 and l.bucket = any (p_buckets);
  if v_grants is not null then perform engine.give_back(v_grants, v_buckets, null); end if;
  return v_buckets;
end $$;
