-- Takes a forward step of the store's clock out of the limiter's clock. Returns 'moved' when it did; 'again' when
-- another process has done it, so the caller must look again; 'witnessed' when there was no step: grants were made in
-- the time that the caller did not see pass, so the caller's monotonic clock had stopped.
-- p_by: size of the step, in microseconds, by the caller's monotonic clock.
-- p_clock_offset: offset of the limiter's clock from the store's clock when the caller read it.
create or replace function engine.undo_clock_step(p_by bigint, p_clock_offset bigint) returns text language plpgsql
  set enable_seqscan = off set jit = off as $$
declare
  v_epoch sluice.epoch;
  v_now bigint;
begin
  perform pg_advisory_xact_lock(1397511523, -12);  -- lock: clock
  select * into v_epoch from sluice.epoch;
  if v_epoch.clock_offset_us <> p_clock_offset or not v_epoch.watched then return 'again'; end if;
  v_now := sluice.now_us() + p_clock_offset - p_by;
  if greatest(v_epoch.seen_us, (select l.at from sluice.ledger l order by l.at desc limit 1)) > v_now + 2000000 then
    return 'witnessed'; end if;
  update sluice.epoch set clock_offset_us = p_clock_offset - p_by, stepped_us = p_by,
    stepped_at = to_timestamp((v_now - p_clock_offset + p_by) / 1e6);
  insert into sluice.step (at, before_us, clock_offset_us) values (v_now, p_clock_offset, p_clock_offset - p_by);
  return 'moved';
end $$;
