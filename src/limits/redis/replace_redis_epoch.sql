-- Replaces the epoch of the state in Redis, because Redis has lost that state, unless another process has replaced it
-- or did so less than 10 s ago. Waits for all transactions that grant under the epoch that was found.
-- p_found: the epoch that the caller found to be lost; null or '': there was none.
-- p_next: the epoch that follows.
-- p_own: the last epoch that the caller itself put in force, which it may replace at once.
-- epoch: the one that counts now.
-- mine: it is p_next, and the caller has to begin it in Redis.
-- owner: whose the keys in Redis are.
create or replace function engine.replace_redis_epoch(p_found text, p_next text, p_own text, out epoch text,
  out mine boolean,
  out owner text)
language plpgsql set lock_timeout = '2s' as $$
declare
  v_now constant timestamptz := sluice.now();
  v_is sluice.shared;
begin
  perform pg_advisory_xact_lock(1397511523, -15);  -- lock: Redis epoch
  select * into v_is from sluice.shared for update;
  mine := v_is.epoch is not distinct from p_found
    -- A process may need 10 s to begin an epoch. A time in the future (the clock was set back) delays no other process.
    and (v_is.epoch is null or v_is.epoch is not distinct from p_own
      or v_is.at not between v_now - interval '10 seconds' and v_now);
  if mine then
    insert into sluice.shared (owner, epoch, at) values (replace(gen_random_uuid()::text, '-', ''), p_next, v_now)
    on conflict (one) do update set epoch = p_next, at = v_now;
  end if;
  select s.epoch, s.owner into epoch, owner from sluice.shared s;
end $$;
