-- Takes in what has arrived for a class (p_news): makes lanes that are not known, gives those that begin to wait a place among the
-- ready ones, and lowers the bound of those that wait already. Call under the class's lock.
create or replace function engine.absorb(p_class bigint, p_now bigint, p_news engine.news) returns void language plpgsql as $$
declare
  v_new integer[];   -- positions of lanes that are not known
  v_lanes sluice.lane[];
begin
  if p_news.lanes is null then return; end if;
  with known as (
    select u.o, u.pos, k.* from unnest(p_news.lanes, p_news.bounds) with ordinality u (id, pos, o)
    left join lateral (select l.id, l.v, l.list, l.bound from sluice.lane l where l.id = u.id order by l.v desc limit 1) k on true
  ), lowered as (
    -- A job that comes back before the lane's head keeps the rank under which the lane stands.
    update sluice.lane l set v = l.v + 1, bound = k.pos from known k
    where l.id = k.id and l.v = k.v and k.list is not null and k.pos < k.bound
  )
  select array_agg(k.o) filter (where k.id is null),
         array(select l from known k join sluice.lane l on l.id = k.id and l.v = k.v where k.list is null)
  into v_new, v_lanes from known k;
  if v_new is not null then v_lanes := v_lanes || engine.make_lanes(p_class, p_news, v_new); end if;
  if v_lanes <> '{}' then perform engine.seat_lanes(p_class, p_now, v_lanes, p_news); end if;
end $$;
