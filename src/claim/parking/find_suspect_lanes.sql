-- Returns the lanes of a class that a claim at p_now may read: lanes with arrivals, lanes in front of the lists that
-- are ready or due, lanes that stand behind another one of their fair key, and lanes from which turns are computed.
-- p_arrived: the lanes with arrivals
create or replace function engine.find_suspect_lanes(p_class bigint, p_arrived bigint[], p_now bigint)
returns bigint[] language plpgsql as $$
begin
  return array(
    with list as (
      select distinct i.id from sluice.list i where i.class = p_class and i.due <= p_now order by i.id limit 256
    ), front as (
      select f.id, f.fair from list i cross join lateral (
        (select r.id, r.fair from sluice.lane r where r.class = p_class and r.list = i.id and r.vstart is not null
         order by r.vstart, r.id limit 256)
        union all
        (select r.id, r.fair from sluice.lane r where r.class = p_class and r.list = i.id and r.vstart is not null
         order by r.vstart desc limit 1)
        union all
        (select r.id, r.fair from sluice.lane r where r.class = p_class and r.list = i.id and r.vstart is null
         order by r.fair, r.rank, r.id limit 256)) f
    )
    select unnest(p_arrived)
    union
    select f.id from front f
    union
    select k.id from (select distinct i.id from sluice.list i where i.class = p_class limit 256) i cross join lateral (
      select r.id from sluice.lane r where r.class = p_class and r.list = i.id and r.vstart is not null
      order by r.vstart desc limit 1) k
    union
    select k.id from front f cross join lateral (
      select r.id from sluice.lane r
        where r.class = p_class and r.fair = f.fair and r.vstart is not null order by r.vstart desc limit 1) k);
end $$;
