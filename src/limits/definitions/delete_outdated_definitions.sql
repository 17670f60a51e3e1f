-- Deletes definitions that nothing needs any more. It keeps, of each limit, and of each key that has definitions of its
-- own: the newest hundred; those that ledger rows of a bucket may have (versions only grow, so they lie between the
-- version of the bucket's oldest row and of its newest); and the newest version without a concurrency
-- (engine.rebuild_bucket_state).
create or replace function engine.delete_outdated_definitions() returns void
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_limit record;
begin
  for v_limit in
    select d.name, d.key, (array_agg(d.version order by d.version desc))[100] as least,
           max(d.version) filter (where 'concurrency' <> all (d.kind)) as free
    from sluice.limit_def d group by d.name, d.key having count(*) > 100
  loop
    with used as materialized (
      select distinct o.version as first, w.version as last from sluice.bucket b
      cross join lateral (select l.version from sluice.ledger l where l.bucket = b.id order by l.at, l.n limit 1) o
      cross join lateral (select l.version
        from sluice.ledger l where l.bucket = b.id order by l.at desc, l.n desc limit 1) w
      where b.name = v_limit.name
    )
    delete from sluice.limit_def d
    where d.name = v_limit.name and d.key = v_limit.key and d.version < v_limit.least
      and d.version is distinct from v_limit.free
      and not exists (select 1 from used u where d.version between u.first and u.last);
  end loop;
end $$;
