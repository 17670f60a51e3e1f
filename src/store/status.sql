-- The state of the whole in a few numbers; none of them counts rows of a table that may be large.
select ((select coalesce(sum(n), 0) from sluice.lane where list is not null)
        + (select coalesce(sum(a.n), 0) from sluice.arrival a where a.class <> 0 and a.xid >= coalesce(
            (select pg_snapshot_xmax(b.snap) from sluice.absorbed b where b.class = a.class order by b.n desc limit 1), '0'::xid8)))::bigint as waiting,
       (select count(*) from (select 1 from sluice.job where due_at is not null limit 10001) s)::bigint as scheduled,
       (select coalesce(sum(cardinality(seqs)), 0) from sluice.claim)::bigint as running,
       (select coalesce(sum(greatest(s.n_live_tup, 0)), 0) from pg_inherits i join pg_stat_all_tables s on s.relid = i.inhrelid
        where i.inhparent = 'sluice.done'::regclass)::bigint as done,
       (select count(*) from (select 1 from sluice.failed limit 10001) f)::bigint as failed,
       (select count(*) from sluice.worker)::bigint as workers,
       (select coalesce(sum(slots), 0) from sluice.worker)::bigint as slots,
       (select min(created_at) from (select j.created_at from sluice.lane l cross join lateral (
          select created_at from sluice.job where lane = l.id and seq >= l.bound and due_at is null order by seq limit 1) j
        where l.list is not null limit 1000) o) as oldest
