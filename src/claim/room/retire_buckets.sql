-- Deletes the buckets of keys that do not come back, row and state; sluice.usage keeps what they have used. A key that
-- comes back finds all of its room free, as the deleted state had it (`engine.find_unused_buckets`), and its first job
-- makes the bucket again (`engine.make_buckets`). A bucket that a lane or a running job has is kept. Other jobs come
-- back by an arrival. New lanes wait while this runs, because it holds the lock of new lanes, which
-- `engine.make_buckets` takes shared: so after a look at all lanes no claim can use the buckets.
-- p_keep_us: for how many microseconds after its last use a bucket is kept in any case, because a new definition looks
-- back on ledger rows that are kept
-- p_after: it looks at one portion of buckets with greater ids
-- more: the last id of the portion; null: there are no more
-- gone: how many buckets were deleted
create or replace function engine.retire_buckets(
  p_keep_us bigint, p_cap bigint, p_after bigint, out more bigint, out gone bigint)
language plpgsql set jit = off as $$
declare
  v_portion constant integer := 1000;
  v_now bigint := engine.limiter_now_us(p_cap);
  v_ids bigint[];
  v_ats bigint[];
  v_ns bigint[];
  v_needed bigint[];
begin
  gone := 0;
  if not pg_try_advisory_xact_lock(1397511523, -6) then return; end if;  -- lock: old lanes
  if not pg_try_advisory_xact_lock(1397511523, -18) then return; end if;  -- lock: usage
  select array_agg(b.id), case when count(*) = v_portion then max(b.id) end into v_ids, more
  from (select id from sluice.bucket where id > p_after order by id limit v_portion) b;
  begin
    select array_agg(b.bucket), array_agg(b.at), array_agg(b.n) into v_ids, v_ats, v_ns
    from engine.find_unused_buckets(v_ids, v_now, v_now - p_keep_us) b;
  exception when data_exception or integrity_constraint_violation or assert_failure then
    -- A bucket that nobody uses is found nowhere else. The next look retires the others of this portion.
    if engine.park_buckets(array(select b.name || coalesce(':' || nullif(b.key, ''), '')
      from sluice.bucket b where b.id = any (v_ids))) = '{}' then raise; end if;
    return;
  end;
  if v_ids is null then return; end if;
  begin
    set local lock_timeout = '200ms';
    perform pg_advisory_xact_lock(1397511523, -8);  -- lock: new lanes
    -- Lanes are read before running jobs: a job claimed from a lane that is gone was running before the lane went.
    v_needed := array(
      select distinct b from unnest(v_ids) b join (select unnest(l.buckets) as id from sluice.lane l) x on x.id = b);
    v_needed := v_needed || array(select h from engine.find_buckets_in_use() h);
    select array_agg(b.id), array_agg(b.at), array_agg(b.n) into v_ids, v_ats, v_ns
    from unnest(v_ids, v_ats, v_ns) b (id, at, n)
    where not exists (select 1 from unnest(v_needed) x where x = b.id);
    perform engine.lock_buckets(v_ids);
  exception when lock_not_available then return;
  end;
  perform engine.sum_buckets(v_ids, v_now);
  -- An attempt that was given up may have put the bucket on hold meanwhile: then there is a newer row. Or it has got
  -- definitions of its own.
  with same as (
    select b.id from unnest(v_ids, v_ats, v_ns) b (id, at, n)
    join sluice.bucket k on k.id = b.id and k.def_key = ''
    left join lateral (
      select o.at, o.n from sluice.ledger o where o.bucket = b.id order by o.at desc, o.n desc limit 1) l on true
    where (l.at, l.n) is not distinct from (b.at, b.n)
  ), forgotten as (
    delete from sluice.ledger where bucket = any (array(select id from same))
  ), unsummed as (
    delete from sluice.summed where bucket = any (array(select id from same))
  ), accepted as (
    delete from sluice.refusal where bucket = any (array(select id from same))
  ), retired as (
    delete from sluice.bucket where id = any (array(select id from same)) returning 1
  )
  select count(*) into gone from retired;
end $$;
