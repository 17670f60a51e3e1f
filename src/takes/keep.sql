-- A process that holds places says that it lives for p_life more, in one statement for all of them. p_cap: as for a
-- claim. life_us: null, when it was given up meanwhile: then it holds nothing any more. held: the grants under which it
-- holds places.
create or replace function engine.keep(p_holder uuid, p_life bigint, p_cap bigint, out now_us bigint,
  out life_us bigint, out held uuid[])
language plpgsql set enable_seqscan = off set jit = off as $$
begin
  now_us := engine.limiter_us(p_cap);
  update sluice.holder set alive_until = now_us + p_life
    where id = p_holder and alive_until > now_us returning p_life into life_us;
  held := array(select id from sluice.lease where holder = p_holder);
end $$;
