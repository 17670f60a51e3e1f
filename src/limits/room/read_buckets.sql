-- Reads what is stored about buckets, in the order of p_buckets: name, key of its definition, newest ledger row (as a
-- whole, and some columns), and the row of sluice.epoch. paused: a pause holds for jobs, or the bucket is parked. It is
-- SQL, because the planner puts the query in place of the call. Nothing sorts: sluice.epoch has one row, and a LATERAL
-- query with a LIMIT keeps the order.
create or replace function engine.read_buckets(p_buckets bigint[], p_further boolean)
returns table (
  ord integer, id bigint, name text, def_key text, parked boolean, paused boolean, newest sluice.ledger, n bigint,
  at bigint, hold bigint, trial_us bigint, clock_offset_us bigint, closed_us bigint,
  watched boolean)
language sql stable as $$
  select u.o::integer, u.b, b.name, b.def_key, b.parked, b.parked or not p_further and exists (
           select 1 from sluice.limit_pause p where p.name = b.name and p.key in ('', b.key)),
         k.newest, k.n, k.at, k.hold, k.trial_us, e.clock_offset_us, e.closed_us, e.watched
  from sluice.epoch e cross join unnest(p_buckets) with ordinality u (b, o)
  left join lateral (select k.name, k.key, k.def_key, k.parked from sluice.bucket k where k.id = u.b limit 1) b on true
  left join lateral (
    select l as newest, l.* from sluice.ledger l
    where l.bucket = u.b and b.parked is null order by l.at desc, l.n desc limit 1) k on true
$$;
