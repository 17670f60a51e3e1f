-- One further grant for a running attempt, in all its buckets or in none; of concurrency it holds its place already.
-- p_grant makes a repeated call harmless.
-- p_cap: the latest time that the caller's monotonic clock allows the store's clock to show (null: unknown).
-- Answers granted, or how long to wait before it is worth asking again.
create or replace function sluice.take_v1(p_grant uuid, p_buckets bigint[], p_cap bigint)
returns table (granted boolean, wait_us bigint) language plpgsql as $$
declare
  v_now bigint;
  v_next bigint;
begin
  perform sluice.same_v1();
  perform sluice.lock_v1(p_buckets);
  perform sluice.renew_v1(p_buckets);
  v_now := sluice.limiter_us(p_cap);
  if exists (
    select 1 from (select l.claim from sluice.ledger l where l.bucket = p_buckets[1] order by l.at desc, l.n desc limit 1000) t
    where t.claim = p_grant)
  then
    return query select true, 0::bigint;
    return;
  end if;
  select max(r.next) into v_next from sluice.room_v1(p_buckets, v_now, true) r where r.avail < 1;
  if v_next is not null then
    return query select false, greatest(v_next - v_now, 1);
    return;
  end if;
  perform sluice.charge_v1(p_grant, v_now, p_buckets, array_fill(1, array[cardinality(p_buckets)]), true);
  return query select true, 0::bigint;
end $$;
