-- Moves lanes after a claim, under their classes' locks: on to their next bound, into the list of the bucket that denied
-- them, out of all lists when empty, or to a later rank; moves their fair keys' turns; and keeps each list's floor and due
-- time. p_stored: the turn under which each lane was found. p_vstart is null for a lane that is alone. Jobs that
-- would wait in vain are ended (doom). True when something is still worth claiming now.
create or replace function engine.move(
  p_now bigint, p_lane sluice.lane[], p_stored bigint[], p_take integer[], p_blocked integer[], p_buckets bigint[],
  p_fairs bigint[], p_vstart bigint[], p_moves engine.move[]) returns boolean
language plpgsql as $$
declare
  v_lists bigint[];
  v_ranks integer[];
  v_older boolean;  -- some are seated under the rank of an older head
  v_new boolean[];
  v_stays boolean;  -- a lane that is alone, and goes on where it is
  v_gone integer[]; -- of each lane, jobs that would have waited in vain
  v_later boolean;
  -- Of p_moves, to find a lane's by place: arrays joined in SQL are compared each with each.
  v_ids bigint[] := array(select m.lane from unnest(p_moves) with ordinality m order by m.ordinality);
begin
  select array_agg(d.list order by q.ordinality), array_agg(greatest(d.rank, q.rank) order by q.ordinality), bool_or(d.rank > q.rank)
  into v_lists, v_ranks, v_older
  from unnest(p_lane) with ordinality q
  left join lateral (select (x.m).* from (select p_moves[array_position(v_ids, q.id)] as m offset 0) x) m on true
  cross join lateral (
    select m.head - 60 * q.priority as rank, case
      when q.n <= coalesce(m.taken + m.late, 0) then null
      when p_take[q.ordinality] > coalesce(m.seen, 0) and coalesce(m.seen, 0) = coalesce(m.taken + m.late, 0) then null
      when p_blocked[q.ordinality] > 0 then p_buckets[p_blocked[q.ordinality]] else 0 end as list) d;
  select d.gone, d.later into v_gone, v_later from engine.doom(p_now, p_lane, v_lists) d;
  if v_gone is not null then v_lists := array(
    select case when q.n > coalesce(m.taken + m.late, 0) + v_gone[q.ordinality] then v_lists[q.ordinality] end
    from unnest(p_lane) with ordinality q left join lateral (select (x.m).* from (select p_moves[array_position(v_ids, q.id)] as m offset 0) x) m on true order by q.ordinality); end if;
  -- A lane's rank follows its head wherever it is seated anew; else by the hour, so that few dead seats are left, and by the
  -- minute where other lanes of its fair key wait.
  if v_older then v_ranks := array(
    select case when q.list is distinct from v_lists[q.ordinality] or r >= q.rank + 60 or (r > q.rank and f.lanes > 1) then r else q.rank end
    from unnest(p_lane) with ordinality q join unnest(v_ranks) with ordinality u (r, o) on u.o = q.ordinality
    cross join lateral (select k.lanes from sluice.fair k where k.class = q.class and k.id = q.fair order by k.v desc limit 1) f
    order by u.o); end if;
  v_stays := p_vstart is null and v_lists[1] is not distinct from p_lane[1].list;
  -- Nobody of the fair key stands in the list that the lane joins: it needs a turn there.
  if not v_stays then v_new := array(
    select q.list is distinct from v_lists[q.ordinality] and v_lists[q.ordinality] is not null and not exists (
      select 1 from sluice.seat s where s.class = q.class and s.list = v_lists[q.ordinality] and s.fair = q.fair offset 0)  -- turn
    from unnest(p_lane) with ordinality q order by q.ordinality); end if;
  update sluice.lane l set
    v = l.v + 1,
    n = case when v_lists[q.ordinality] is null then 0 else l.n - coalesce(m.taken + m.late, 0) - coalesce(v_gone[q.ordinality], 0) end,
    bound = case when m.seen > 0 and m.seen = m.taken + m.late then m.last + 1 else l.bound end,
    list = v_lists[q.ordinality],
    rank = v_ranks[q.ordinality]
  from unnest(p_lane) with ordinality q left join lateral (select (x.m).* from (select p_moves[array_position(v_ids, q.id)] as m offset 0) x) m on true
  where l.id = q.id and l.v = q.v;
  if not v_stays or v_ranks[1] <> p_lane[1].rank then perform engine.reseat(p_lane, v_lists, v_ranks); end if;
  if not v_stays then
    perform engine.turn(p_lane, p_stored, p_take, v_lists, v_new, p_fairs, p_vstart);
  end if;
  if not v_stays or v_lists[1] <> 0 then
    perform engine.list(p_now, p_lane, p_stored, v_lists, (select min(u) from unnest(p_vstart) u),
      not exists (select 1 from unnest(p_moves) m where m.taken + m.late > 0));
  end if;
  perform engine.plead(array_agg(v_lists[q.ordinality]), array_agg(b), p_now)
  from unnest(p_lane) with ordinality q, unnest(q.buckets) b where v_lists[q.ordinality] <> 0;
  if v_later then perform engine.hasten(p_lane, v_lists, p_now); end if;
  return (select sum(t) from unnest(p_take) t) > coalesce((select sum(m.taken) from unnest(p_moves) m), 0)
    or coalesce((select sum(g) from unnest(v_gone) g), 0) > 0;
end $$;
