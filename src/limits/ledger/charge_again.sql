-- Charges buckets once more for requests whose answers were slow: they may have arrived later than the margin allows,
-- so they count from now on, too (docs/margins.md, "Slow answers"). As units used beyond a grant, they may
-- owe more than a bucket holds, and cannot be given back. Quotas do not count them: their margin is what is stated.
-- p_buckets: their ids, each once; p_units: units for each.
-- Returns the epoch under which Redis has to charge them, too: the state of a later one is built from the ledger. Null:
-- no limit is in Redis.
create or replace function engine.charge_again(p_buckets bigint[], p_units bigint[], p_cap bigint)
returns text
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_epoch constant text := engine.lock_redis_epoch();
begin
  perform engine.lock_buckets(p_buckets);
  perform engine.charge_overrun(b.id, null, b.units, engine.limiter_now_us(p_cap), 'again')
  from unnest(p_buckets, p_units) b (id, units);
  return v_epoch;
end $$;
