-- Says when a taker that was denied may ask again, in microseconds, and has it wait in line until a while after that:
-- unless it does not wait (p_line null), or not for so long (p_wait). Far from its turn it asks rarely, but never so
-- rarely that who dies in the line holds up others for long. p_n: its place in the line, if it had one before.
create or replace function engine.queue(
  p_line uuid, p_n bigint, p_bucket bigint, p_cost bigint, p_soonest bigint, p_wait bigint, p_now bigint) returns bigint
  language plpgsql as $$
declare
  -- Room is there, but it is the turn of jobs: they come any moment, or when there is as much as the next one costs.
  v_turn bigint := case
    when p_soonest = 0 then least(1000000, greatest(25000, engine.awaited(p_bucket, p_now) - p_now)) end;
  v_wait bigint := case when p_soonest = 0 then v_turn
    else least(p_soonest, least(5000000, greatest(1000000, p_soonest / 4))) end;
begin
  if p_line is null then
    return case p_soonest when 0 then v_turn when 9007199254740991 then 1000000 else p_soonest end;
  end if;
  if p_soonest < 9007199254740991 and p_soonest > p_wait then
    delete from sluice.taker where id = p_line;
  else
    insert into sluice.taker as t (id, n, bucket, cost, alive_until)
    values (p_line, coalesce(p_n, nextval(pg_get_serial_sequence('sluice.taker', 'n'))), p_bucket, p_cost,
      p_now + v_wait + 3000000)
    on conflict (id) do update set alive_until = excluded.alive_until;
  end if;
  return v_wait;
end $$;
