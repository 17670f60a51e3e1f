-- Gives lanes that begin to wait a place among the ready ones: the virtual start of a fair key that did not wait is not
-- before those who did (no credit for idleness), and at most 64 turns behind them (no lasting debt for having been
-- alone). Who did wait: in the lists that the lane can stand in, of its own class, or of any when nobody does there.
create or replace function engine.enter(p_class bigint, p_lane sluice.lane[]) returns void language plpgsql as $$
declare
  v_list sluice.list;
  v_ready bigint;
  v_lift bigint := (select k.lift from sluice.class k where k.id = p_class);
  v_fairs bigint[];
  v_lanes integer[];
  v_fronts bigint[];
  v_new boolean[];
  v_starts bigint[];
begin
  if cardinality(p_lane) = 0 then return; end if;
  v_ready := engine.front(p_class, 0);
  insert into sluice.fair (class, id, vstart) select p_class, l.fair, 0 from (select distinct fair from unnest(p_lane)) l
  where (select count(*) from (select 1 from sluice.fair k where k.class = p_class and k.id = l.fair order by k.v desc limit 1) x) = 0;
  select * into v_list from sluice.list where class = p_class and id = 0 order by v desc limit 1;
  with own as (
    select l.fair, l.id, u.list from unnest(p_lane) l cross join lateral (select 0::bigint as list union all select unnest(l.buckets)) u
  ), front as materialized (
    -- As front has it: to call that for each class and each list would be most of what a claim of many classes takes.
    select d.list, (
      select t.vstart + h.lift - v_lift
      from (select p_class as id union select k.id from sluice.class k where v_ready is null and d.list = 0
            union select k.class from sluice.list k where v_ready is null and k.id = d.list and k.id <> 0) c
      join sluice.class h on h.id = c.id
      cross join lateral (select floor from sluice.list where class = c.id and id = d.list order by v desc limit 1) l
      cross join lateral (select vstart from sluice.turn where class = c.id and list = d.list and vstart >= l.floor order by vstart limit 1) t
      order by c.id <> p_class, t.vstart + h.lift limit 1) as vstart
    from (select distinct list from own) d
  )
  select array_agg(o.fair order by o.fair), array_agg(o.lanes order by o.fair), array_agg(o.front order by o.fair)
  into v_fairs, v_lanes, v_fronts
  from (select own.fair, count(distinct own.id)::integer as lanes, min(f.vstart) as front from own join front f using (list) group by own.fair) o;
  v_new := array(select (select count(*) from (select 1 from sluice.seat s where s.class = p_class and s.list = 0 and s.fair = f limit 1) x) = 0
                 from unnest(v_fairs) with ordinality u (f, o) order by o);
  with was as (
    select k.*, k.ctid as tid, u.lanes as more, u.o,
      -- Nobody waits: those who begin together are compared with each other, from where the class was.
      coalesce(u.front, greatest(v_list.floor, min(k.vstart) filter (where u.front is null) over ())) as front
    from unnest(v_fairs, v_lanes, v_fronts) with ordinality u (fair, lanes, front, o)
    cross join lateral (select *, ctid from sluice.fair where class = p_class and id = u.fair order by v desc limit 1) k
  ), moved as (
    update sluice.fair f set v = f.v + 1, lanes = w.lanes + w.more,
      vstart = case when w.lanes > 0 then greatest(w.vstart, w.front) else greatest(w.front, least(w.vstart, w.front + 64000000)) end
    from was w where f.ctid = w.tid
    returning f.vstart, w.o
  )
  select array_agg(vstart order by o) into v_starts from moved;
  insert into sluice.turn (class, list, vstart, fair)
  select p_class, 0, u.vstart, u.fair from unnest(v_fairs, v_starts, v_new) u (fair, vstart, is_new) where u.is_new;
  insert into sluice.seat (class, list, fair, rank, lane) select p_class, 0, l.fair, l.rank, l.id from unnest(p_lane) l;
  if v_list.class is null then
    insert into sluice.list (class, id, floor) values (p_class, 0, (select min(u) from unnest(v_starts) u));
  elsif (select min(u) from unnest(v_starts) u) < v_list.floor then
    update sluice.list set v = v + 1, floor = (select min(u) from unnest(v_starts) u) where class = p_class and id = 0 and v = v_list.v;
  end if;
end $$;
