-- Renews the lease of a process that holds places, for all of its places in one statement.
-- p_holder: the process.
-- p_life: how long the lease lasts from now on, in microseconds.
-- now_us: the time of the renewal.
-- life_us: p_life; null: the process was given up meanwhile and holds no places any more.
-- held: the grants under which it holds places.
create or replace function engine.renew_holder(p_holder uuid, p_life bigint, p_cap bigint, out now_us bigint,
  out life_us bigint, out held uuid[])
language plpgsql set enable_seqscan = off set jit = off as $$
begin
  now_us := engine.limiter_now_us(p_cap);
  update sluice.holder set alive_until = now_us + p_life
    where id = p_holder and alive_until > now_us returning p_life into life_us;
  held := array(select id from sluice.lease where holder = p_holder);
end $$;
