-- Corrects the recorded numbers of waiting jobs of classes. Claims add jobs that arrive, and subtract jobs that they
-- claim. So jobs that were cancelled, replaced, moved or parked, or have expired, still count until nothing of the
-- class waits; a claim does not read enough to know better. This function counts the jobs of up to 100 classes,
-- selected at random, without locks, and subtracts from each recorded number by how much it is too high. It leaves out
-- classes with more than 100,000 jobs or 20,000 lanes, and reads 100,000 jobs in all; the next call comes in a minute.
create or replace function engine.recount_waiting() returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_most_lanes constant integer := 20000;
  v_left integer := 100000;  -- how many jobs may still be read
  v_class bigint;
  v_is record;
  v_now sluice.class_state;
  v_classes bigint[] := '{}'; v_ns bigint[] := '{}'; v_excesses bigint[] := '{}';
begin
  for v_class in
    select c.id from sluice.class c
    cross join lateral (select * from sluice.class_state where class = c.id order by n desc limit 1) s
    where c.retired is null and s.waiting > 0 and s.target is null order by random() limit 100
  loop
    exit when v_left <= 0;
    -- One statement, so that all is of one moment. Jobs whose arrivals are unread are not counted yet.
    with state as materialized (
      select * from sluice.class_state where class = v_class order by n desc limit 1
    ), unread as materialized (
      select a.lane, min(a.pos) as pos, sum(a.n)::bigint as n from state s cross join lateral (
        select a.lane, a.pos, a.n from sluice.arrival a where a.class = v_class and a.xid >= pg_snapshot_xmax(s.snap)
        union all
        select a.lane, a.pos, a.n from pg_snapshot_xip(s.snap) m
        join sluice.arrival a on a.class = v_class and a.xid = m) a group by a.lane
    ), lane as materialized (
      select l.id, least(l.bound, u.pos) as bound, (
        select count(*) from (
          select 1 from sluice.job j
          where j.lane = l.id and j.seq >= u.pos and j.claim is null and j.due_at is null limit u.n) o) as unread
      from (
        select id, bound from sluice.lane where class = v_class and list is not null and vstart is not null
        union all
        select id, bound from sluice.lane where class = v_class and list is not null and vstart is null
        limit v_most_lanes + 1) l
      left join unread u on u.lane = l.id
    )
    select s.n, s.waiting + x.unread - c.jobs as excess, x.lanes, c.jobs into v_is
    from state s, (select count(*) as lanes, coalesce(sum(l.unread), 0)::bigint as unread from lane l) x, (
      select count(*) as jobs from (
        select 1 from lane l cross join lateral (
          select 1 from sluice.job j
          where j.lane = l.id and j.seq >= l.bound and j.claim is null and j.due_at is null offset 0) j
        limit v_left + 1) c) c;
    continue when not found;
    v_left := v_left - v_is.jobs - v_is.lanes;
    continue when v_is.lanes > v_most_lanes or v_left < 0 or v_is.excess = 0;
    v_classes := v_classes || v_class; v_ns := v_ns || v_is.n; v_excesses := v_excesses || v_is.excess;
  end loop;
  for i in 1 .. cardinality(v_classes) loop
    continue when not pg_try_advisory_xact_lock(1397511524, (v_classes[i] & 1023)::integer);  -- lock: class
    select * into v_now from sluice.class_state where class = v_classes[i] order by n desc limit 1;
    -- Claims that came between have counted on from there, unless one found that nothing waited.
    insert into sluice.class_state
    select v_now.class, v_now.n + 1, v_now.snap, greatest(0, v_now.waiting - v_excesses[i]), v_now.target, v_now.at_xid,
           v_now.at_lane, v_now.at_pos
    where not exists (
      select 1 from sluice.class_state s where s.class = v_classes[i] and s.n > v_ns[i] and s.waiting = 0);
  end loop;
end $$;
