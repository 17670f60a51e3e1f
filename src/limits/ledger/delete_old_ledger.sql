-- Deletes ledger rows that are older than p_keep_us. Keeps each bucket's newest row, which is its state, and the rows
-- that a rule of their limit still looks back on. The rows that are left prove that no limit was exceeded since.
-- sluice.usage counts all rows before they are deleted (engine.sum_buckets).
-- Also deletes clock steps that are older than all ledger rows and than 400 days (retention goes by clock steps:
-- engine.store_time_ago), and definitions that nothing needs (engine.delete_outdated_definitions). One call reads one
-- portion of 20,000 rows. It looks up newest row and span once for each bucket of the portion: 100,000 rows of limits
-- that look back longer than p_keep_us stay, and are read again each time.
-- p_keep_us: age in microseconds.
-- p_after: time of the limiter's clock to go on from; 0: from the oldest row.
-- more: where the next call goes on; null: there is no further portion.
-- gone: number of rows deleted.
create or replace function engine.delete_old_ledger(p_keep_us bigint, p_after bigint, out more bigint, out gone bigint)
language plpgsql
  set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 20000;
  -- Only history that is kept for longer than a year needs older clock steps.
  v_steps constant bigint := 400 * 86400000000;
  v_now bigint := engine.limiter_now_us();
  v_before bigint := v_now - p_keep_us;
  v_long boolean := exists (select 1 from sluice.limit_def d, unnest(d.span) s where s > p_keep_us);
  v_rows tid[];
  v_buckets bigint[];
begin
  gone := 0;
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;  -- lock: old rows
  if not pg_try_advisory_xact_lock(1397511523, -18) then return; end if;  -- lock: usage
  if p_after <= 0 then
    delete from sluice.step s
      where s.at < (select least(l.at, v_now - v_steps) from sluice.ledger l order by l.at limit 1);
    perform engine.delete_outdated_definitions();
  end if;
  with portion as materialized (
    select l.ctid as tid, l.bucket, l.n, l.at
      from sluice.ledger l where l.at > p_after and l.at < v_before order by l.at limit v_portion
  ), state as materialized (
    select b.bucket, m.at, m.n, case when v_long then (
        select max(s)
          from sluice.bucket k
            join sluice.limit_def d on d.name = k.name, unnest(d.span) s where k.id = b.bucket) end as span
    from (select distinct bucket from portion) b
    cross join lateral (select l.at, l.n
      from sluice.ledger l where l.bucket = b.bucket order by l.at desc, l.n desc limit 1) m
  )
  select array_agg(p.tid) filter (where (s.at, s.n) > (p.at, p.n) and p.at <= v_now - coalesce(s.span, 0)),
         case when count(*) = v_portion then max(p.at) end, array_agg(distinct p.bucket)
  into v_rows, more, v_buckets
  from portion p join state s using (bucket);
  perform engine.sum_buckets(v_buckets, v_now);
  delete from sluice.ledger where ctid = any (v_rows);
  get diagnostics gone = row_count;
end $$;
