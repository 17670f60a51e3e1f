-- Moves the turns that pick reads (p_most of each list) and that stand behind their fair key to where that really is, and says
-- how many. A fair key that was served in one class or list stays behind in its others until they are looked at; where more of
-- such turns than are read stand before all others, nobody knows who comes after them, and nobody could be served.
create or replace function engine.refile(p_classes bigint[], p_now bigint, p_since bigint, p_most integer) returns integer
language plpgsql as $$
declare
  v_count integer;
begin
  with list as (
    select c as class, 0::bigint as id, l.floor, k.lift from unnest(p_classes) c
    cross join lateral (select lift from sluice.class where id = c limit 1) k
    cross join lateral (select floor from sluice.list where class = c and id = 0 order by v desc limit 1) l
    union all
    select c, w.id, w.floor, k.lift from unnest(p_classes) c
    cross join lateral (select lift from sluice.class where id = c limit 1) k
    cross join lateral (select id, floor from sluice.list where class = c and due > p_since and due <= p_now order by due limit p_most) w
  ), turn as (
    select l.class, l.id as list, t.fair, t.vstart as stored, max(l.lift + greatest(t.vstart, f.vstart)) over (partition by t.fair) - l.lift as goal
    from list l cross join lateral (
      select r.vstart, r.fair from sluice.turn r where r.class = l.class and r.list = l.id and r.vstart >= l.floor
      order by r.vstart, r.fair limit p_most) t
    cross join lateral (select k.vstart from sluice.fair k where k.class = l.class and k.id = t.fair order by k.v desc limit 1) f
  ), gone as (
    delete from sluice.turn t using turn u
    where u.goal > u.stored and t.class = u.class and t.list = u.list and t.vstart = u.stored and t.fair = u.fair
    returning t.class, t.list, u.goal, t.fair
  ), back as (
    insert into sluice.turn (class, list, vstart, fair) select g.class, g.list, g.goal, g.fair from gone g
    on conflict do nothing
  )
  select count(*) into v_count from gone;
  return v_count;
end $$;
