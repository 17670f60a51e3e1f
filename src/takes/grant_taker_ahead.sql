-- Grants a taker that was denied its unit ahead of time (engine.grant_ahead): its process waits for the instant by a
-- timer. So no unit is used later than it is free, however long a statement takes. Only a take of one unit of one
-- bucket gets that, whose turn comes soon enough. Earlier takers of other processes that have not repeated their
-- requests yet get the next instants. Nothing is granted ahead if jobs wait for the bucket, or were granted something
-- in the last second (as far as the newest 500 grants show): they stand in no line, and would find no room each time.
-- (Jobs of several limits may wait for another bucket just now. Ids of takes have version 4.) Nor if grants ahead were
-- stopped (engine.stop_grants_ahead), or if several databases share their limits, as in `engine.claim_jobs`.
-- p_taker: with the earlier takers (engine.count_earlier_takers).
-- p_units: what the take costs.
-- p_soonest: as `soonest_us` of engine.acquire_grants.
-- early_us: how long before there is room the taker requests its grant again, in microseconds; 0: it gets nothing
-- ahead.
-- room: the bucket at the instant. Null: nothing is granted now.
create or replace function engine.grant_taker_ahead(
  p_taker engine.taker, p_room engine.room, p_units bigint, p_soonest bigint, p_now bigint,
  out early_us bigint, out room engine.room)
language plpgsql stable as $$
declare
  v_grant record;
begin
  early_us := 0;
  if p_taker.line is null or p_units <> 1 or p_room.version is null or p_room.hold > p_now or p_room.trial_us > 0
    or 'rate' <> all (p_room.kind) or 'concurrency' = any (p_room.kind)
    or (select s.stores > 1 from sluice.shared s)
    or engine.jobs_due_at(p_room.bucket, p_now) is not null
    or exists (
      select 1 from (
        select l.claim, l.units from sluice.ledger l where l.bucket = p_room.bucket and l.at > p_now - 1000000
        order by l.at desc, l.n desc limit 500) r
      where r.units > 0 and get_byte(uuid_send(r.claim), 6) >> 4 <> 4)
    or exists (
      select 1 from sluice.taker t where t.id = '00000000-0000-0000-0000-000000000000' and t.bucket = p_room.bucket
        and t.alive_until > p_now)
  then return; end if;
  early_us := 120000;
  -- The first in the line finds room even if others are granted as much as they may.
  if p_taker.earlier[1] > 0 and p_soonest > 160000 then return; end if;
  v_grant := engine.grant_ahead(p_room, 1, p_now);
  if v_grant.instants[1] <= p_now + coalesce(p_taker.wait, engine.most_ahead_us()) then room := v_grant.room; end if;
end $$;
