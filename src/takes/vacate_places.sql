-- Takes the places in these buckets away from processes whose lease has expired. Such a process has lost its places for
-- good, and its next renewal returns that (`engine.renew_holder`). The caller holds the buckets' locks, and makes their
-- lists due afterwards (`engine.make_lists_due`), because the turn may be that of jobs or of another taker.
-- Returns the bucket of each place that it freed; null: it freed none.
create or replace function engine.vacate_places(p_buckets bigint[], p_now bigint)
returns bigint[] language plpgsql as $$
declare
  v_grants uuid[];
  v_buckets bigint[];
begin
  -- Mark the process first: if it renews its lease now, it waits for this row and then finds that it was given up.
  update sluice.holder set alive_until = 0 where id = any (array(
    select id from sluice.holder where alive_until between 1 and p_now for update skip locked));
  select array_agg(l.id), array_agg(l.bucket) into v_grants, v_buckets
  from sluice.lease l join sluice.holder h on h.id = l.holder where h.alive_until = 0 and l.bucket = any (p_buckets);
  if v_grants is not null then perform engine.give_back_grants(v_grants, v_buckets, null); end if;
  return v_buckets;
end $$;
