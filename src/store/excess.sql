-- What the next round of housekeeping would drop and delete, without doing so. p_done_ms, p_failed_ms: how long jobs are
-- kept; p_ledger_us: how long the ledger is. Rows are counted up to 100,000 of each kind (100,001: more), partitions as
-- volume does.
create or replace function engine.excess(p_done_ms bigint, p_failed_ms bigint, p_ledger_us bigint,
  out partitions json, out late bigint, out keys bigint, out ledger bigint) language plpgsql stable set jit = off as $$
declare
  v_most constant integer := 100001;
  v_now timestamptz := sluice.now();
  v_us bigint := extract(epoch from v_now) * 1000000;
begin
  partitions := (select coalesce(json_agg(json_build_object('name', o.name, 'rows', v.rows, 'bytes', v.bytes)), '[]')
    from engine.outlived(p_done_ms, p_failed_ms, v_now) o cross join lateral engine.volume(format('sluice.%I', o.name)::regclass) v);
  late := (select count(*) from (
    (select 1 from sluice.done_late where finished_at < v_now - p_done_ms * interval '1 ms' limit v_most)
    union all (select 1 from sluice.failed_late where finished_at < v_now - p_failed_ms * interval '1 ms' limit v_most)) l);
  keys := (select count(*) from (select 1 from sluice.idempotency where expires_at < v_now limit v_most) k);
  ledger := (select count(*) from (
    select 1 from sluice.ledger l
    where l.at < v_us - p_ledger_us and l.at <= v_us - coalesce((
        select max(s) from sluice.bucket b join sluice.limit_def d on d.name = b.name, unnest(d.span) s where b.id = l.bucket), 0)
      and exists (select 1 from sluice.ledger m where m.bucket = l.bucket and (m.at, m.n) > (l.at, l.n)) limit v_most) r);
end $$;
