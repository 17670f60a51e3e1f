-- Settles what a take has really used of its buckets: refunds what its grant has left over, and charges as a debt what
-- was used beyond it. A repeated call refunds nothing more, but charges the debt again: repeat it only when the reply
-- was lost.
-- p_grant: the take's grant.
-- p_buckets: names of the buckets that are settled.
-- p_took: units of each that the grant was charged.
-- p_used: units of each that were used.
-- p_full: whether each refunds all at once (`engine.refund_units`).
create or replace function engine.settle_take(
  p_grant uuid, p_buckets text[], p_took bigint[], p_used bigint[], p_full boolean[], p_cap bigint) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '1s'
as $$
declare
  v_buckets constant bigint[] := array(
    select sluice.hash64(t) from unnest(p_buckets) with ordinality u (t, o) order by o);
  v_back bigint[] := array_fill(0::bigint, array[cardinality(p_buckets)]);
  v_now bigint;
begin
  perform engine.lock_buckets_and_pools(v_buckets);
  v_now := engine.limiter_now_us(p_cap);
  for i in 1 .. cardinality(v_buckets) loop
    perform engine.charge_overrun(v_buckets[i], p_grant, p_used[i] - p_took[i], v_now);
    -- Units that an earlier call refunded are no longer there.
    v_back[i] := greatest(0, (
      select sum(g.units) - p_used[i] from (
        select * from sluice.ledger l where l.bucket = v_buckets[i] order by l.at desc, l.n desc limit 1000) g
      where g.claim = p_grant));
    perform engine.refund_units(v_buckets[i], p_grant, v_back[i], p_full[i]);
  end loop;
  perform engine.make_lists_due(v_buckets, v_back, v_now);
end $$;
