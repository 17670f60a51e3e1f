-- Reads arrivals of classes into their lanes: creates unknown lanes, seats lanes that begin to wait in the ready list,
-- and lowers the bound of lanes that wait already. The caller has locked the classes.
-- p_now: microseconds of the limiter clock.
-- p_news: what has arrived for each class (`engine.read_arrivals`).
create or replace function engine.absorb_arrivals(p_now bigint, p_news engine.news[])
returns void language plpgsql as $$
declare
  v_news engine.news;
  v_new integer[];   -- positions of unknown lanes
  v_known sluice.lane[];
  v_made record;
  v_lanes sluice.lane[] := '{}';  -- lanes that begin to wait, class by class
  v_ends integer[] := '{0}';
  v_takes text[] := '{}';
begin
  foreach v_news in array p_news loop
    with known as (
      select u.o, u.pos, k.* from unnest(v_news.lanes, v_news.bounds) with ordinality u (id, pos, o)
      left join lateral (
        select l.id, l.v, l.list, l.bound from sluice.lane l where l.id = u.id order by l.v desc limit 1) k on true
    ), lowered as (
      -- A job that returns ahead of the lane's head does not change the lane's rank.
      update sluice.lane l set v = l.v + 1, bound = k.pos from known k
      where l.id = k.id and l.v = k.v and k.list is not null and k.pos < k.bound
    )
    select array_agg(k.o) filter (where k.id is null),
           array(select l from known k join sluice.lane l on l.id = k.id and l.v = k.v where k.list is null)
    into v_new, v_known from known k;
    v_lanes := v_lanes || v_known;
    if v_new is not null then
      select * into v_made from engine.make_lanes((v_news.state).class, v_news, v_new) m;
      v_lanes := v_lanes || v_made.lanes;
      v_takes := v_takes || v_made.takes;
    end if;
    v_ends := v_ends || cardinality(v_lanes);
  end loop;
  -- The buckets of all classes in one order: otherwise two claims of several classes could wait for each other.
  if v_takes <> '{}' then perform engine.make_buckets(v_takes); end if;
  for i in 1 .. cardinality(p_news) loop
    continue when v_ends[i] = v_ends[i + 1];
    v_news := p_news[i];
    perform engine.seat_lanes((v_news.state).class, p_now, v_lanes[v_ends[i] + 1 : v_ends[i + 1]], v_news);
  end loop;
end $$;
