-- Computes when to try again after units were denied, and puts a taker into the line of its buckets until some time
-- after that. A taker without a line, or one that would not wait for that long, is not put into the line. A taker far
-- from its turn retries rarely, but often enough that one that dies in the line does not hold up the others for long.
-- p_taker: the taker that was denied; its line is null for a job.
-- p_units: what it needs of each bucket.
-- p_soonest: as `soonest_us` of `engine.acquire_grant`.
-- p_now: limiter's time in microseconds.
-- Returns how long to wait, in microseconds.
create or replace function engine.queue_taker(
  p_taker engine.taker, p_buckets bigint[], p_units bigint[], p_soonest bigint, p_now bigint) returns bigint
  language plpgsql as $$
declare
  -- There is room, but jobs have the turn: their claim comes any moment, or once there is room for the next job's cost.
  v_turn bigint := case when p_soonest = 0 then least(1000000, greatest(25000,
    (select min(engine.jobs_due_at(b, p_now)) from unnest(p_buckets) b) - p_now)) end;
  v_wait bigint := case when p_soonest = 0 then v_turn
    else least(p_soonest, least(5000000, greatest(1000000, p_soonest / 4))) end;
begin
  if p_taker.line is null then
    return case p_soonest when 0 then v_turn when 9007199254740991 then 1000000 else p_soonest end;
  end if;
  if p_soonest < 9007199254740991 and p_soonest > p_taker.wait then
    delete from sluice.taker where id = p_taker.line;
  else
    p_taker.n := coalesce(p_taker.n, nextval(pg_get_serial_sequence('sluice.taker', 'n')));
    insert into sluice.taker as t (id, n, bucket, cost, alive_until)
    select p_taker.line, p_taker.n, u.bucket, u.units, p_now + v_wait + 3000000
    from unnest(p_buckets, p_units) u (bucket, units)
    on conflict (id, bucket) do update set alive_until = excluded.alive_until;
  end if;
  return v_wait;
end $$;
