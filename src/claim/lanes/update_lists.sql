-- Updates the floor and the due time of the lists that lanes were found in or joined. A list in which no lane stands is
-- deleted, except the ready list: its floor shows to later lanes how far the class was. Units are reserved for the
-- lanes in front of the other lists (`engine.reserve_units`), and no longer for those that are not in front. A list is
-- due when the next job of its front lane fits beside the units that are reserved for others; if only those are in its
-- way it is due soon. Where limits have shares, it records which shares were denied.
-- p_was: the lanes as they were found.
-- p_next: the lanes that moved, as they stood before `engine.choose_front_lanes`. Their turns are used as lower bounds
-- only. That is safe because `engine.choose_front_lanes` gives a lane the furthest turn of its key, which is not before
-- the turn of the lane that was in front.
-- p_ahead_list, p_early_us: a bucket that is granted ahead of time, and how long before it has room its list is due, in
-- microseconds; null: no bucket is
create or replace function engine.update_lists(
  p_now bigint, p_was sluice.lane[], p_next sluice.lane[], p_ahead_list bigint default null,
  p_early_us bigint default 0)
returns void
language plpgsql as $$
declare
  v_lists engine.due_list[];
  v_list engine.due_list;
  v_lane sluice.lane;
  v_kept bigint[] := '{}';  -- lanes in front, for which units may be reserved
  v_reserved boolean;       -- units are reserved for lanes of these classes
begin
  v_lists := array(
    select (t.class, t.id, l.tid, null, t.far, (
        select r.vstart from sluice.lane r
        where r.class = t.class and r.list = t.id and r.vstart >= coalesce(least(l.floor, t.least), 0)
        order by r.vstart limit 1), null, null, null,
        case t.id when p_ahead_list then p_early_us else 0 end)::engine.due_list
    from (select u.class, u.list as id, min(u.vstart) as least, max(u.vstart) as far
          from unnest(p_was || p_next) u where u.list is not null group by 1, 2) t
    left join lateral (
      select ctid as tid, floor from sluice.list
      where class = t.class and id = t.id order by v desc limit 1) l on true);
  foreach v_list in array v_lists loop
    continue when v_list.id <> 0;
    if v_list.front is null then
      update sluice.list l set v = l.v + 1, floor = greatest(l.floor, v_list.far), due = null
      where l.ctid = v_list.row_id;
    else
      perform engine.update_ready_list(v_list.class, p_now, v_list.front);
    end if;
  end loop;
  v_lists := array(select l from unnest(v_lists) l where l.id <> 0);
  if v_lists = '{}' then return; end if;
  v_reserved := exists (
    select 1 from sluice.reservation r where r.class in (select l.class from unnest(p_was || p_next) l));
  if v_reserved or exists (select 1 from unnest(p_was || p_next) l where l.costed or l.denied >= 1) then
    for i in 1 .. cardinality(v_lists) loop
      v_list := v_lists[i];
      continue when v_list.front is null;
      select l.* into v_lane from (  -- the one that a claim looks at first
        select * from sluice.lane l where l.class = v_list.class and l.list = v_list.id and l.vstart = v_list.front
        order by l.id limit 64) l order by l.rank, l.id limit 1;
      continue when not v_lane.costed and v_lane.denied < 2;
      v_kept := v_kept || v_lane.id;
      v_list.need := engine.reserve_units(v_lane, p_now);
      v_lists[i] := v_list;
    end loop;
    if v_reserved then
      delete from sluice.reservation r using (select distinct l.class, l.id from unnest(p_was || p_next) l) g
      where r.class = g.class and r.lane = g.id and r.lane <> all (v_kept);
    end if;
  end if;
  v_lists := engine.compute_list_times(p_now, v_lists);
  delete from sluice.list l using unnest(v_lists) w where l.ctid = w.row_id and w.front is null;
  update sluice.list l set v = l.v + 1, floor = w.front, due = w.due, period = w.period, slack = w.slack,
    early_us = w.early_us
  from unnest(v_lists) w where l.ctid = w.row_id and w.front is not null;
  insert into sluice.list (class, id, v, floor, due, period, slack, early_us)
  select w.class, w.id, p_now, w.front, w.due, w.period, w.slack, w.early_us
  from unnest(v_lists) w where w.row_id is null and w.front is not null;
  if exists (select 1 from sluice.limit_def d where d.lend_us is not null) then
    -- Lanes that were found in a list were denied until now, also those that leave it and must wait for their turn.
    perform engine.record_denied_shares(array_agg(l.list), array_agg(b), p_now)
    from unnest(p_was || p_next) l, unnest(l.buckets) b where l.list <> 0;
  end if;
end $$;
