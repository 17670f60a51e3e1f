-- Moves the turns of fair keys whose lanes a claim has moved, and counts their waiting lanes. p_stored: the turn under
-- which each lane was found; p_lists: where it stands now (null: nowhere); p_new: its fair key has no turn there yet.
-- p_take: jobs that it got; p_vstart: new virtual start of each of p_fairs, lifted as pick has it; null for a lane that is
-- alone: nobody is compared with it. Who got nothing stays where it stood, however far others have lifted its class.
create or replace function engine.turn(
  p_lane sluice.lane[], p_stored bigint[], p_take integer[], p_lists bigint[], p_new boolean[], p_fairs bigint[], p_vstart bigint[])
returns void language plpgsql as $$
begin
  update sluice.fair f set
    v = f.v + 1,
    vstart = case when c.got then greatest(f.vstart, p_vstart[array_position(p_fairs, f.id)] - c.lift) else f.vstart end,
    lanes = f.lanes - c.left_all
  from (select q.class, q.fair, min(k.lift) as lift, count(*) filter (where p_lists[q.ordinality] is null)::integer as left_all,
               p_vstart is not null and bool_or(p_take[q.ordinality] > 0) as got
        from unnest(p_lane) with ordinality q join sluice.class k on k.id = q.class group by 1, 2) c
  cross join lateral (select k.ctid from sluice.fair k where k.class = c.class and k.id = c.fair order by k.v desc limit 1) k
  where f.ctid = k.ctid and (c.got or c.left_all > 0);
  with lane as (
    select q.class, q.list, q.fair, p_stored[q.ordinality] as vstart, p_lists[q.ordinality] as joins, p_new[q.ordinality] as is_new,
           case when p_vstart is not null and bool_or(p_take[q.ordinality] > 0) over (partition by q.class, q.fair)
             then p_vstart[array_position(p_fairs, q.fair)] - k.lift end as served
    from unnest(p_lane) with ordinality q join sluice.class k on k.id = q.class
  ), place as (
    select distinct l.class, l.list, l.vstart, l.fair, l.served, false as is_new from lane l
    union
    -- One turn, also of a key whose lanes come from several lists.
    select l.class, l.joins, max(l.vstart), l.fair, l.served, true from lane l where l.is_new group by l.class, l.joins, l.fair, l.served
  ), goal as (  -- offset 0: looked up one by one, whatever the planner thinks of the table; else all seats may be read
    select p.*, greatest(p.vstart, p.served) as goal,
           exists (select 1 from sluice.seat s where s.class = p.class and s.list = p.list and s.fair = p.fair offset 0) as stays
    from place p
  ), gone as (
    delete from sluice.turn t using goal g
    where not g.is_new and (not g.stays or g.goal <> g.vstart)
      and t.class = g.class and t.list = g.list and t.vstart = g.vstart and t.fair = g.fair
  )
  insert into sluice.turn (class, list, vstart, fair)
  select distinct g.class, g.list, g.goal, g.fair from goal g where g.stays and (g.is_new or g.goal <> g.vstart);
end $$;
