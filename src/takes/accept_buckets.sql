-- Ends what engine.refuse_buckets began, the hold of a refusal or of an open circuit, after the vendor accepted a
-- request (`recordAccepted` in takes/acquire.ts): the buckets grant again as their rules allow. Does nothing for a
-- bucket of which the vendor refused a request that was sent later, or at the same time. A hold for another cause
-- (engine.hold_buckets), such as that the vendor has nothing left, goes on.
-- It notifies workers and takers that wait for the buckets.
-- p_age_us: how long ago the accepted request got its grant, or longer; null: an operator ends it, whatever was sent.
-- p_host: the host that accepted it; another host that is down stays so. Null: ends the holds of all hosts.
-- p_but: holds for this cause stay: a rejected credential only shows that the vendor is not down.
create or replace function engine.accept_buckets(
  p_buckets bigint[], p_age_us bigint, p_cap bigint, p_host text default null, p_but text default null)
returns void
language plpgsql as $$
declare
  v_now bigint;
  v_sent constant bigint := engine.limiter_now_us(p_cap) - p_age_us;
  v_room engine.room;
  v_rooms engine.room[] := '{}';
begin
  perform engine.lock_buckets_and_pools(p_buckets);
  v_now := engine.limiter_now_us(p_cap);
  delete from sluice.refusal r
  where r.bucket = any (p_buckets) and (r.at < v_sent or p_age_us is null) and r.cause is distinct from p_but
    and (r.cause <> 'down' or r.host = p_host or r.host is null or p_host is null);
  foreach v_room in array engine.bucket_room(p_buckets, v_now) loop
    continue when v_room.trial_us = 0 or exists (select 1 from sluice.refusal r where r.bucket = v_room.bucket);
    v_room.trial_us := 0;
    if p_age_us is null or not exists (
      select 1 from (
        select l.hold, l.cause from sluice.ledger l where l.bucket = v_room.bucket
        order by l.at desc, l.n desc limit 200) l
      where l.hold = v_room.hold and l.cause in ('used', 'closed', 'spent'))
    then v_room.hold := least(v_room.hold, v_room.now_at); end if;
    v_rooms := v_rooms || v_room;
  end loop;
  perform engine.append_ledger(v_rooms);
  perform engine.make_lists_due(array(select r.bucket from unnest(v_rooms) r),
    array(select greatest(1, r.avail) from unnest(v_rooms) r), v_now);
end $$;
