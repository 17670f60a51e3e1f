-- Returns how many lanes of a class a claim looks at, and one of them (`engine.claim_lone_lane`): lanes in front of the
-- ready list and of lists that are due, and lanes that stand behind another lane of their fair key. It stops counting
-- as soon as it has seen that no lane is alone.
create or replace function engine.find_front_lanes(
  p_class bigint, p_begun bigint, p_since bigint, out n bigint, out lane bigint) language plpgsql stable as $$
begin
  select count(*), min(s.id) into n, lane from (
    select t.id from (
      (select id, floor from sluice.list where class = p_class and id = 0 order by v desc limit 1)
      union all
      (select id, floor from sluice.list
       where class = p_class and due > p_since and due <= p_begun and id <> 0 order by due limit 2)
    ) l cross join lateral (
      select r.id from sluice.lane r where r.class = p_class and r.list = l.id and r.vstart >= l.floor
      order by r.vstart, r.id limit 2) t
    union all
    (select b.id from sluice.lane b where b.class = p_class and b.list is not null and b.vstart is null limit 1)) s;
end $$;
