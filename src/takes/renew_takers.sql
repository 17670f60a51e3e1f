-- Keeps takers in their lines while their process does not repeat their requests, because it sends those of others
-- first (takes/turnstile.ts). A row lasts as long as the longest that `engine.queue_taker` writes, so a process that
-- dies holds up the others no longer than before. It renews only rows that will lapse soon.
-- p_lines: the takers' ids in the line; of those that are not there any more, nothing is written.
create or replace function engine.renew_takers(p_lines uuid[], p_cap bigint) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now constant bigint := engine.limiter_now_us(p_cap);
begin
  -- Another transaction that has locked a row renews it, or deletes it.
  update sluice.taker set alive_until = v_now + 8000000 where ctid = any (array(
    select ctid from sluice.taker where id = any (p_lines) and alive_until < v_now + 4000000 for update skip locked));
end $$;
