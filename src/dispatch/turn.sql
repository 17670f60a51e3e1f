-- Moves the turns of fair keys whose lanes a claim has moved, and counts their waiting lanes. p_stored: the turn under
-- which each lane was found; p_lists: where it stands now (null: nowhere); p_new: its fair key has no turn there yet.
-- p_vstart: new virtual start of each of p_fairs; null for a lane that is alone: nobody is compared with it.
create or replace function sluice.turn_v1(
  p_lane sluice.lane[], p_stored bigint[], p_lists bigint[], p_new boolean[], p_fairs bigint[], p_vstart bigint[])
returns void language plpgsql as $$
begin
  update sluice.fair f set
    v = f.v + 1,
    vstart = case when p_vstart is null then f.vstart else greatest(f.vstart, p_vstart[array_position(p_fairs, f.id)]) end,
    lanes = f.lanes - c.left_all
  from (select q.class, q.fair, count(*) filter (where p_lists[q.ordinality] is null)::integer as left_all
        from unnest(p_lane) with ordinality q group by 1, 2) c
  cross join lateral (select k.ctid from sluice.fair k where k.class = c.class and k.id = c.fair order by k.v desc limit 1) k
  where f.ctid = k.ctid and (p_vstart is not null or c.left_all > 0);
  with place as (
    select distinct q.class, q.list, p_stored[q.ordinality] as vstart, q.fair, false as is_new from unnest(p_lane) with ordinality q
    union
    select q.class, p_lists[q.ordinality], p_stored[q.ordinality], q.fair, true from unnest(p_lane) with ordinality q where p_new[q.ordinality]
  ), goal as (
    select p.*, case when p_vstart is null then p.vstart else greatest(p.vstart, p_vstart[array_position(p_fairs, p.fair)]) end as goal,
           exists (select 1 from sluice.seat s where s.class = p.class and s.list = p.list and s.fair = p.fair) as stays
    from place p
  ), gone as (
    delete from sluice.turn t using goal g
    where not g.is_new and (not g.stays or g.goal <> g.vstart)
      and t.class = g.class and t.list = g.list and t.vstart = g.vstart and t.fair = g.fair
  )
  insert into sluice.turn (class, list, vstart, fair)
  select distinct g.class, g.list, g.goal, g.fair from goal g where g.stays and (g.is_new or g.goal <> g.vstart);
end $$;
