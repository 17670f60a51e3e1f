-- Counts what the next round of maintenance would drop and delete, and changes nothing. Rows are counted up to 100,000
-- of each kind (100,001 means more); for partitions they are counted or estimated as in `engine.table_size`.
-- p_done_ms, p_failed_ms: how long finished and failed jobs are kept.
-- p_ledger_us: how long the ledger is kept.
-- partitions: partitions of history to drop, with their rows and bytes.
-- late: jobs that finished after the partition of their day was dropped.
-- keys: idempotency keys.
-- ledger: ledger rows.
create or replace function engine.count_expired(p_done_ms bigint, p_failed_ms bigint, p_ledger_us bigint, p_cap bigint,
  out partitions json, out late bigint, out keys bigint, out ledger bigint) language plpgsql set jit = off as $$
declare
  v_most constant integer := 100001;
  v_us bigint := engine.limiter_now_us(p_cap);
  v_done_before timestamptz := engine.store_time_ago(p_done_ms, p_cap);
  v_failed_before timestamptz := engine.store_time_ago(p_failed_ms, p_cap);
  v_lapsed timestamptz := engine.earliest_store_time(86400000, p_cap);
begin
  partitions := (select coalesce(json_agg(json_build_object('name', o.name, 'rows', v.rows, 'bytes', v.bytes)), '[]')
    from engine.find_droppable_partitions(p_done_ms, p_failed_ms, p_cap) o
    cross join lateral engine.table_size(format('sluice.%I', o.name)::regclass) v);
  late := (select count(*) from (
    (select 1 from sluice.done_late where finished_at < v_done_before limit v_most)
    union all (select 1 from sluice.failed_late where finished_at < v_failed_before limit v_most)) l);
  keys := (select count(*) from (select 1 from sluice.idempotency where expires_at < v_lapsed limit v_most) k);
  ledger := (select count(*) from (
    select 1 from sluice.ledger l
    where l.at < v_us - p_ledger_us and l.at <= v_us - coalesce((
        select max(s) from sluice.bucket b join sluice.limit_def d on d.name = b.name, unnest(d.span) s
        where b.id = l.bucket), 0)
      and exists (select 1 from sluice.ledger m where m.bucket = l.bucket and (m.at, m.n) > (l.at, l.n))
    limit v_most) r);
end $$;
