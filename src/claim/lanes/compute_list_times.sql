-- Returns these lists of buckets with the time at which each is due, the period in which its bucket frees one unit, and
-- the slack: how long a unit may wait for a worker. A list whose front job needs several units is due within ten
-- minutes, because that job may be cancelled or expire, and those behind it may need fewer. Nobody who deletes a job
-- has the locks of its lists. While units are reserved for other lanes, or takers reserve units of the bucket or of a
-- member of its pool, the list is not due at once: claims would repeat, and find no room each time.
create or replace function engine.compute_list_times(p_now bigint, p_lists engine.due_list[]) returns engine.due_list[]
language plpgsql as $$
declare
  v_ids bigint[];
  v_needs bigint[];
  v_soon bigint[];  -- when to look whether units are still reserved for others
begin
  v_ids := array(select w.id from unnest(p_lists) with ordinality w order by w.ordinality);
  v_needs := array(select w.need from unnest(p_lists) with ordinality w order by w.ordinality);
  if exists (select 1 from sluice.reservation r where r.bucket = any (v_ids)) then
    select array_agg(coalesce(o.need, w.need, 1) + coalesce(k.need, 0) order by w.ordinality),
           array_agg(case when k.need > 0 then p_now + greatest(50000, least(1000000, (k.until - p_now) / 8)) end
                     order by w.ordinality)
    into v_needs, v_soon from unnest(p_lists) with ordinality w
    -- The list's own reservation: units of this bucket that are reserved for a lane of the list, which goes first.
    left join lateral (
      select r.since, r.lane, r.need from sluice.reservation r join lateral (
        select l.list from sluice.lane l where l.id = r.lane order by l.v desc limit 1) l on l.list = r.bucket
      where r.bucket = w.id and r.class = w.class order by r.since limit 1) o on true
    left join lateral (
      select sum(r.need)::bigint as need, min(r.until) as until from sluice.reservation r
      where r.bucket = w.id and r.lane is distinct from o.lane and r.until > p_now
        and (o.lane is null or (r.since, r.lane) < (o.since, o.lane))) k on true;
  end if;
  if exists (select 1 from sluice.taker t where t.alive_until > p_now) then
    v_soon := array(
      select case when exists (
          select 1 from sluice.taker t where t.alive_until > p_now and t.reserves and t.bucket in (
            select u.id union all
            select sluice.hash64(b.name || ':' || m) from sluice.bucket b cross join lateral (
              select members from sluice.limit_def where name = b.name order by version desc limit 1) d,
              unnest(d.members) m
            where b.id = u.id and b.key = '*')) then greatest(v_soon[u.o], p_now + 20000) else v_soon[u.o] end
      from unnest(v_ids) with ordinality u (id, o) order by u.o);
  end if;
  return array(
    select (w.class, w.id, w.row_id,
            case when r.next < v_soon[w.ordinality] then v_soon[w.ordinality]
                 when w.need > r.most then p_now
                 else least(r.next - w.early_us, case when w.need > 1 then p_now + 600000000 end) end,
            w.far, w.front, case when w.early_us = 0 then r.period else (
              select max(u.weight / u.drain) + 1
              from unnest(r.kind, r.kind[2:], r.weight, r.drain) u (kind, following, weight, drain)
              where u.kind in ('rate', 'pace') and u.following is distinct from 'pace') end,
            r.slack, w.need, w.early_us)::engine.due_list
    from unnest(p_lists) with ordinality w
    join unnest(engine.recorded_room(v_ids, p_now, false, v_needs)) r on r.ord = w.ordinality order by w.ordinality);
end $$;
