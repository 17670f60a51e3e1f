-- Announces arrivals of deleted classes again, for class 0: their senders still knew those classes. It deletes arrivals
-- whose jobs are gone.
-- p_least: all transactions before this one have ended.
create or replace function engine.announce_orphaned_arrivals(p_least xid8) returns void language plpgsql as $$
declare
  v_orphans bigint[];
begin
  with recursive known (class) as (
    (select class from sluice.arrival order by class limit 1)
    union all
    select (select a.class from sluice.arrival a where a.class > k.class order by a.class limit 1)
    from known k where k.class is not null
  )
  select array_agg(k.class) into v_orphans from known k
  where k.class <> 0 and not exists (select 1 from sluice.class c where c.id = k.class);
  if v_orphans is null then return; end if;
  delete from sluice.arrival a where a.class = any (v_orphans) and a.xid < p_least and not exists (
    select 1 from sluice.job j where j.lane = a.lane and j.seq >= a.pos and j.claim is null and j.due_at is null);
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), 0, a.lane, min(a.pos), sum(a.n) from sluice.arrival a
  where a.class = any (v_orphans) and a.xid < p_least and not exists (
    select 1 from sluice.arrival o where o.class = 0 and o.lane = a.lane and pg_visible_in_snapshot(o.xid, (
      select s.snap from sluice.class_state s where s.class = 0 order by s.n desc limit 1)) is not true)
  group by a.lane limit 1000;
end $$;
