-- Returns about how many jobs wait in each class, however many do: those that claims have counted, and the arrivals
-- since. Class 0 has the arrivals of senders that did not know whether their class exists; those that were read are
-- counted in their classes.
create or replace function engine.count_class_jobs() returns table (class bigint, waiting bigint)
language sql stable as $$
  select c.id, case when c.id = 0 then 0 else coalesce(s.waiting, 0) end + coalesce((
    select sum(a.n) from sluice.arrival a
    where a.class = c.id and a.xid >= coalesce(pg_snapshot_xmax(s.snap), '0'::xid8)), 0)::bigint
  from (select 0::bigint as id union all select id from sluice.class where retired is null) c
  left join lateral (
    select k.waiting, k.snap from sluice.class_state k where k.class = c.id order by k.n desc limit 1) s on true
$$;
