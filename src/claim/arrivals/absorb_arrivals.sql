-- Reads arrivals of classes into their lanes: creates unknown lanes, seats lanes that begin to wait in the ready list,
-- and lowers the bound of lanes that wait already. The caller has locked the classes.
-- An unknown lane is built from its first waiting job, and left out if its jobs have gone meanwhile;
-- `engine.seat_lanes` inserts it. Its buckets are in the order of the job's buckets, and so of its costs. A bucket that
-- depends on a worker's label (`ip@host`) stands under that name; each claim finds the worker's own bucket for it
-- (`engine.resolve_buckets`).
-- p_news: what has arrived for each class (`engine.read_arrivals`).
create or replace function engine.absorb_arrivals(p_now bigint, p_news engine.news[])
returns void language plpgsql as $$
declare
  v_news engine.news;
  v_new integer[];   -- positions of unknown lanes
  v_known sluice.lane[];
  v_lanes sluice.lane[] := '{}';  -- lanes that begin to wait, class by class
  v_ends integer[] := '{0}';
  v_names text[];
  v_buckets text[] := '{}';  -- the names of the buckets of unknown lanes, without those that depend on labels
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
      -- Fair keys compete within the limit that they share: without a fair key, the job's first bucket with a key
      -- counts as its fair key; without such a bucket, its class. Retries wait in odd lanes. Their fair key is odd,
      -- too, and that of first attempts is even: so the two take turns, and retries get no more than half of them.
      -- Columns are set by name, because another release may have added columns to the table.
      select array_agg(jsonb_populate_record(null::sluice.lane, jsonb_build_object(
               'id', j.lane, 'v', -1, 'class', (v_news.state).class, 'rank', 0, 'bound', j.seq, 'denied', 0,
               'priority', j.priority, 'weight', coalesce(j.weight, 1), 'costed', j.costs is not null,
               'fair', (j.lane & 1) | (-2 & sluice.hash64(coalesce(
                 j.fair, (select t from unnest(j.buckets) t where t like '%:%' limit 1),
                 j.queue || E'\x1f' || j.task))),
               'buckets', array(select sluice.hash64(t) from unnest(j.buckets) with ordinality u (t, o) order by o)))),
             array(select distinct t
                   from unnest(array_agg(array_to_string(j.buckets, E'\x1f'))) s, unnest(string_to_array(s, E'\x1f')) t
                   where t !~ '^[^:*]+@')
      into v_known, v_names
      from unnest(v_new) o cross join lateral (
        select * from sluice.job
        where lane = v_news.lanes[o] and seq >= v_news.bounds[o] and due_at is null order by seq limit 1) j;
      v_lanes := v_lanes || v_known;
      v_buckets := v_buckets || v_names;
    end if;
    v_ends := v_ends || cardinality(v_lanes);
  end loop;
  -- The buckets of all classes in one order: otherwise two claims of several classes could wait for each other.
  if v_buckets <> '{}' then perform engine.make_buckets(v_buckets); end if;
  for i in 1 .. cardinality(p_news) loop
    continue when v_ends[i] = v_ends[i + 1];
    v_news := p_news[i];
    perform engine.seat_lanes((v_news.state).class, p_now, v_lanes[v_ends[i] + 1 : v_ends[i + 1]], v_news);
  end loop;
end $$;
