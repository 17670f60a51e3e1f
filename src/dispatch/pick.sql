-- Candidate lanes of these classes, unlocked, in fair order: those that are ready, and those whose bucket is due.
-- PL/pgSQL, because a plain SQL function that cannot be inlined is planned anew at each call.
create or replace function sluice.pick_v1(p_classes bigint[], p_now bigint, p_most integer) returns setof bigint
language plpgsql stable as $$
begin
  return query select l.id
  from (
    select unnest(p_classes) as class, 0::bigint as list
    union all
    select w.class, w.bucket
    from unnest(p_classes) c (id)
    cross join lateral (
      select * from sluice.wait where class = c.id and due <= p_now order by due limit p_most) w
  ) s
  cross join lateral (
    select * from sluice.lane where class = s.class and list = s.list
    order by vstart, priority desc, id limit p_most) l
  order by l.vstart, l.priority desc, l.id
  limit p_most;
end $$;
