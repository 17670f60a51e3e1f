-- Computes when to try again after units were denied, and puts a taker into the lines of its buckets until some time
-- after that. A taker that waits in no line, or not for that long, is not put there. A taker far from its turn retries
-- rarely, but often enough that a taker that dies in the line does not hold up the others for long. Other takers leave
-- room for a taker in the buckets that deny it. In its other buckets they do so only if it is the first in the line of
-- each bucket that denies it: so many takers of one busy account reserve one unit of a total, not all of it. They leave
-- no room in a bucket while others deny the taker for longer than that one takes to fill again, as in
-- `engine.reserve_units`, or until a place becomes free: an account that is paused, or has slow requests, must not stop
-- all others. When it has room, the taker still has its place in the line of the total. A caller that gets nothing
-- ahead stops grants ahead, because others would always be before it. A job, or a taker that waits for several units or
-- buckets, stops them until a second after there is room, when it comes back. A taker that does not wait, or not for
-- that long, stops them for 30 s, because it may come back at any time.
-- p_taker: the taker that was denied, with its place in the line; its line is null for a job.
-- p_units: what it needs of each bucket.
-- p_lacking: whether each bucket denied it (`engine.decide_grant`).
-- p_soonest: as `soonest_us` of `engine.acquire_grants`.
-- p_early: as `early_us` of `engine.grant_taker_ahead`; takers whose turns are near each other then wake at the same
-- time, so that few statements serve them.
-- Returns how long to wait, in microseconds.
create or replace function engine.queue_taker(
  p_taker engine.taker, p_buckets bigint[], p_units bigint[], p_lacking boolean[], p_soonest bigint, p_early bigint,
  p_now bigint)
  returns bigint
  language plpgsql as $$
declare
  -- There is room, but jobs have the turn: their claim comes any moment, or once there is room for the next job's cost.
  v_turn bigint := case when p_soonest = 0 then least(1000000, greatest(25000,
    (select min(engine.jobs_due_at(b, p_now)) from unnest(p_buckets) b) - p_now)) end;
  v_wait bigint := case when p_soonest = 0 then v_turn
    else least(p_soonest, least(5000000, greatest(1000000, p_soonest / 4))) end;
  v_leaves constant boolean := (p_soonest < 9007199254740991 and p_soonest > p_taker.wait) is true;
  v_is_first boolean;  -- no earlier taker waits for a bucket that denied this one
  v_rooms engine.room[];
  v_reserves boolean[] := p_lacking;
begin
  if p_early > 0 and p_soonest > 0 then
    v_wait := least(v_wait, greatest(p_soonest - p_early, 10000));
    v_wait := least(p_soonest, greatest(5000, v_wait - (p_now + v_wait) % 40000)); end if;
  if p_taker.line is null or v_leaves or cardinality(p_buckets) > 1 or p_units[1] <> 1 then
    perform engine.stop_grants_ahead(array(
      select b from unnest(p_buckets) b
      where exists (select 1 from sluice.ledger l where l.bucket = b and l.at > p_now)),
      p_now + case when p_taker.holder is not null and (p_taker.line is null or v_leaves) then 30000000
        else least(p_soonest + 1000000, 30000000) end);
  end if;
  if p_taker.line is null then
    return case p_soonest when 0 then v_turn when 9007199254740991 then 1000000 else p_soonest end;
  end if;
  if v_leaves then
    delete from sluice.taker where id = p_taker.line;
  else
    v_is_first := not exists (
      select 1 from unnest(p_buckets, p_lacking) u (bucket, lacking)
        join sluice.taker t on t.bucket = u.bucket and t.alive_until > p_now and t.reserves and t.n < p_taker.n
      where u.lacking and 1 < cardinality(p_buckets));
    if 1 < cardinality(p_buckets) then
      v_rooms := engine.bucket_room(p_buckets, p_now, false, p_units);
      v_reserves := array(
        select (p_lacking[r.ord] or v_is_first) and coalesce((
          select max(o.next) from unnest(v_rooms) o where p_lacking[o.ord] and o.ord <> r.ord), 0)
          < p_now + least(60000000, r.period * r.most)
        from unnest(v_rooms) r order by r.ord);
    end if;
    insert into sluice.taker as t (id, n, bucket, cost, alive_until, reserves)
    select p_taker.line, p_taker.n, u.bucket, u.units, p_now + v_wait + 3000000, u.reserves
    from unnest(p_buckets, p_units, v_reserves) u (bucket, units, reserves)
    on conflict (id, bucket) do update set alive_until = excluded.alive_until, reserves = excluded.reserves;
  end if;
  return v_wait;
end $$;
