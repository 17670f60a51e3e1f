-- Seats lanes that begin to wait among the ready lanes of their class. A fair key that did not wait gets a virtual
-- start that is not before the first key that waited (no credit for idleness), and at most 64 turns behind it (no
-- lasting debt for having been alone); 64 was chosen, and not measured. The keys that waited are those in the lists in
-- which the lane can stand. A new lane has v = -1, and is inserted.
-- p_lanes: the lanes
-- p_news: what has arrived for the class
create or replace function engine.seat_lanes(p_class bigint, p_now bigint, p_lanes sluice.lane[], p_news engine.news)
returns void language plpgsql as $$
declare
  v_floor bigint := coalesce((
    select floor from sluice.list where class = p_class and id = 0 order by v desc limit 1), 0);
  v_front bigint;  -- the first turn of the ready lanes
  v_grouped boolean;
  v_fairs bigint[];
  v_starts bigint[];
begin
  v_front := (
    select vstart from sluice.lane where class = p_class and list = 0 and vstart >= v_floor order by vstart limit 1);
  v_grouped := (select c.grouped from sluice.class c where c.id = p_class);
  if not v_grouped and exists (
    select 1 from unnest(p_lanes) q group by q.fair having count(*) > 1
    union all
    select 1 from unnest(p_lanes) q cross join lateral (
      select 1 from sluice.lane k
      where k.class = p_class and k.fair = q.fair and k.vstart is not null and k.id <> q.id limit 1) k where q.v = -1)
  then
    -- A transaction that has this row locked may wait for the class's lock, which this claim holds. So this claim does
    -- not wait for the row, but fails and is repeated.
    perform 1 from sluice.class where id = p_class for update nowait;
    update sluice.class set grouped = true where id = p_class;
    v_grouped := true;
  end if;
  with front as materialized (
    select d.list, (
      select l.vstart from (
        select floor from sluice.list where class = p_class and id = d.list order by v desc limit 1) f
      cross join lateral (
        select vstart from sluice.lane
        where class = p_class and list = d.list and vstart >= f.floor order by vstart limit 1) l
    ) as vstart
    from (select distinct b as list from unnest(p_lanes) q, unnest(q.buckets) b) d
  ), own as (
    select q.fair, least(v_front, min(f.vstart)) as front, max(coalesce(m.vstart, q.vstart)) as was
    from unnest(p_lanes) q
    left join lateral unnest(q.buckets) b (id) on true left join front f on f.list = b.id
    left join lateral (
      select k.vstart from sluice.lane k
      where v_grouped and k.class = p_class and k.fair = q.fair and k.vstart is not null
      order by k.vstart desc limit 1) m on true
    group by q.fair
  )
  select array_agg(o.fair), array_agg(greatest(
           coalesce(o.front, v_floor), least(coalesce(o.was, 0), coalesce(o.front, v_floor) + 64000000)))
  into v_fairs, v_starts from own o;
  with head as (
    select q.*, u.pos, v_starts[array_position(v_fairs, q.fair)] as start, j.head
    from unnest(p_lanes) q join unnest(p_news.lanes, p_news.bounds) u (id, pos) on u.id = q.id
    left join lateral (
      select engine.lane_rank(coalesce(j.since, j.created_at), q.priority) as head from sluice.job j
      where j.lane = q.id and j.seq >= u.pos and j.due_at is null order by j.seq limit 1) j on true
  ), moved as (
    update sluice.lane l set v = l.v + 1, list = 0, bound = h.pos, vstart = h.start, rank = coalesce(h.head, l.rank),
      denied = 0
    from head h where h.v >= 0 and l.id = h.id and l.v = h.v
  )
  insert into sluice.lane (id, v, class, list, vstart, rank, fair, bound, priority, weight, buckets, costed)
  select h.id, 0, h.class, 0, h.start, coalesce(h.head, 0), h.fair, h.pos, h.priority, h.weight, h.buckets, h.costed
  from head h where h.v = -1;
  if v_grouped then
    perform engine.choose_front_lanes(p_class, 0, array(select distinct q.fair from unnest(p_lanes) q));
  end if;
  perform engine.update_ready_list(p_class, p_now, (select least(v_front, min(s)) from unnest(v_starts) s));
end $$;
