-- Reserves units for a lane in front of a list, where other lanes would otherwise take for ever what it waits for. A
-- lane gets a reservation in two cases. Its next job needs more than one unit of the bucket that it waits for, and
-- nothing else is in its way. Or another bucket denied it twice while the bucket of its list had room: then it gets
-- units of its other buckets. Such a lane waits for the slowest bucket that lacks room, and units are reserved in the
-- buckets that are slower still: this is one order for all lanes, so no two lanes wait for each other.
-- In the other buckets more than one job gets units: up to 16, which bounds the jobs that are read, and up to an eighth
-- of the bucket, so that four lanes can have them, because at most half of a bucket is reserved.
-- It deletes reservations of the lane that are no longer due. Call under the locks of the class and of the buckets.
-- Returns how many units the lane's next job needs of the bucket that it waits for; null: one.
create or replace function engine.reserve_units(p_lane sluice.lane, p_now bigint)
returns bigint language plpgsql as $$
declare
  v_costs integer[];
  v_buckets bigint[];
  v_needs bigint[];
  v_until bigint;
  v_jobs bigint := 1;  -- how many jobs it reserves units for
begin
  if p_lane.costed then
    select j.costs into v_costs from sluice.job j
    where j.lane = p_lane.id and j.seq >= p_lane.bound and j.claim is null and j.due_at is null order by j.seq limit 1;
  else
    -- A window may have all its room at once, and then none for long: so more than one job of the lane has its turn.
    v_jobs := (
      select count(*) from (
        select 1 from sluice.job j
        where j.lane = p_lane.id and j.seq >= p_lane.bound and j.claim is null and j.due_at is null limit 16) x);
  end if;
  -- The bucket of a label has no row under the name that the lane uses, and is left out.
  with room as (
    select r.bucket, greatest(coalesce(v_costs[r.ord], 1), 1) as need, r.next, r.most, r.period, r.units,
           case when 'concurrency' <> any (r.kind) then r.period * r.most else 0 end as refill,
           r.units < greatest(coalesce(v_costs[r.ord], 1), 1) or r.places < 1 as lacks
    from unnest(engine.recorded_room(p_lane.buckets, p_now, false, array(
      select greatest(1, c)::bigint from unnest(v_costs[:cardinality(p_lane.buckets)]) with ordinality u (c, o)
      order by o))) r
    where exists (select 1 from sluice.bucket b where b.id = r.bucket offset 0)
  )
  select array_agg(r.bucket order by r.bucket),
         array_agg(case when r.bucket = p_lane.list then r.need
                        else greatest(r.need, least(v_jobs, r.most / 8, r.units)) end order by r.bucket),
         max(case when w.next < p_now + 60000000 then w.next else p_now + 9000000 end) + 1000000
  into v_buckets, v_needs, v_until
  from room r join room w on w.bucket = p_lane.list
  where case when r.bucket = p_lane.list
             then r.need between 2 and r.most
               and not exists (select 1 from room o where o.lacks and o.bucket <> p_lane.list)
             else p_lane.denied >= 2 and (r.refill, r.bucket) > (w.refill, w.bucket) and not r.lacks
               -- Not for longer than the bucket takes to fill again, and half of the bucket at most.
               and (w.refill = 0 or w.next < p_now + least(60000000, r.refill))
               and r.need + coalesce((
                 select sum(k.need) from sluice.reservation k
                 where k.bucket = r.bucket and k.lane <> p_lane.id and k.until > p_now), 0)
                 <= greatest(1, r.most / 2) end;
  delete from sluice.reservation r
  where r.class = p_lane.class and r.lane = p_lane.id and r.bucket <> all (coalesce(v_buckets, '{}'));
  insert into sluice.reservation (bucket, class, lane, need, since, until)
  select u.bucket, p_lane.class, p_lane.id, u.need, p_now, v_until from unnest(v_buckets, v_needs) u (bucket, need)
  on conflict (bucket, lane) do update set need = excluded.need, until = excluded.until
  -- Not at each claim, because each update leaves a dead row.
  where (reservation.need, reservation.until / 500000) <> (excluded.need, excluded.until / 500000);
  return v_costs[array_position(p_lane.buckets, p_lane.list)];
end $$;
