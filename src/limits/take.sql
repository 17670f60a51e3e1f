-- One further grant for a running attempt, in all its buckets or in none; of concurrency it holds its place already.
-- p_grant makes a repeated call harmless. p_units: how much of each bucket (null: one).
-- p_cap: the latest time that the caller's monotonic clock allows the store's clock to show (null: unknown).
-- Answers granted, or how long to wait before it is worth asking again. Call under lock.
create or replace function engine.take(p_grant uuid, p_buckets bigint[], p_cap bigint, p_units bigint[] default null)
returns table (granted boolean, wait_us bigint) language plpgsql as $$
declare
  v_units bigint[] := coalesce(p_units, array_fill(1::bigint, array[cardinality(p_buckets)]));
  v_now bigint;
  v_next bigint;
  v_rooms engine.room[];
begin
  perform engine.renew(p_buckets);
  v_now := engine.limiter_us(p_cap);
  if exists (
    select 1 from (select l.claim
      from sluice.ledger l where l.bucket = p_buckets[1] order by l.at desc, l.n desc limit 1000) t
    where t.claim = p_grant)
  then
    return query select true, 0::bigint;
    return;
  end if;
  -- What takes nothing waits all the same while nothing is free.
  select array_agg(r::engine.room), max(r.next) filter (where r.avail < greatest(v_units[r.ord], 1))
    into v_rooms, v_next
  from engine.room(p_buckets, v_now, true, v_units) r;
  if v_next is not null then
    if v_next = 9007199254740991 then perform engine.refuse_parked(p_buckets); end if;
    perform engine.plead(array_agg(d), array_agg(u), v_now) from unnest(p_buckets) d, unnest(p_buckets) u;
    return query select false, greatest(v_next - v_now, 1);
    return;
  end if;
  perform engine.append_ledger(v_rooms, p_grant, v_units);
  return query select true, 0::bigint;
end $$;
