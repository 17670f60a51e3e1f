-- Housekeeping: history partitions, expired idempotency keys, absorbed arrivals, old ledger rows.
-- Deletes in small portions, so that it never holds anything for long. Returns the partitions that it dropped.
create or replace function sluice.prune_v1(p_keep_days integer) returns setof text language plpgsql
  set enable_seqscan = off set jit = off as $$
begin
  return query select sluice.partition_v1(p_keep_days);
  delete from sluice.idempotency where ctid in (
    select ctid from sluice.idempotency where expires_at < sluice.now() order by expires_at limit 10000);
  perform sluice.forget_v1((extract(epoch from sluice.now() - make_interval(days => p_keep_days)) * 1000000)::bigint);
  perform sluice.sweep_v1();
end $$;
