-- Has p_next follow the epoch p_found, whose state Redis has lost (null or '': there was none), unless another does
-- already, or somebody does just that. p_own: the caller's own last one, in whose place he may put another at once.
-- Waits for all that grants under the one that was found. epoch: which it is now; mine: it is p_next, and the caller's
-- to begin in Redis; owner: of its keys.
create or replace function engine.succeed(p_found text, p_next text, p_own text, out epoch text, out mine boolean,
  out owner text)
language plpgsql set lock_timeout = '2s' as $$
declare
  v_now constant timestamptz := sluice.now();
  v_is sluice.shared;
begin
  perform pg_advisory_xact_lock(1397511523, -15);
  select * into v_is from sluice.shared for update;
  mine := v_is.epoch is not distinct from p_found
    -- So long a beginning may take before another takes it over; and a clock that was set back keeps nobody waiting.
    and (v_is.epoch is null or v_is.epoch is not distinct from p_own
      or v_is.at not between v_now - interval '10 seconds' and v_now);
  if mine then
    insert into sluice.shared (owner, epoch, at) values (replace(gen_random_uuid()::text, '-', ''), p_next, v_now)
    on conflict (one) do update set epoch = p_next, at = v_now;
  end if;
  select s.epoch, s.owner into epoch, owner from sluice.shared s;
end $$;
