-- Ends jobs whose limits cannot have room before the jobs expire, so that a failure job or a sender can react in time.
-- It examines the 2,000 jobs that expire first, of each lane the first with what it costs, and ends 500 at most. It
-- assumes that all running jobs and all takes give back their grants (`engine.count_refundable_units`). It waits for no
-- row: a claim that has a job locked decides about that job. Returns how many jobs it ended.
create or replace function engine.expire_hopeless_jobs() returns integer language plpgsql as $$
declare
  v_now bigint := engine.limiter_now_us();
  v_most constant integer := 500; v_ended integer := 0;
  v_jobs sluice.job[]; v_lanes sluice.lane[];
  v_first bigint[];     -- when the first job of each lane expires
  v_costs text[];       -- and what it takes of the lane's buckets; null: one unit each
  v_buckets bigint[]; v_needs bigint[];  -- each bucket with the units of a first job
  v_room bigint[];      -- when the bucket has room for them at the earliest
  v_capped bigint[];    -- the units, but no more than the bucket ever has free: other jobs cost too much
  v_back bigint[];      -- as v_room, if every grant in use is given back
  v_at bigint; v_of bigint;
begin
  select array_agg(l), array_agg((extract(epoch from j.expires_at) * 1000000)::bigint + e.clock_offset_us),
         array_agg(j.costs) into v_lanes, v_first, v_costs
  from (select clock_offset_us from sluice.epoch limit 1) e
  cross join (select distinct on (lane) lane, expires_at, array_to_string(costs, ',') as costs from (
    select lane, expires_at, costs from sluice.job
    where expires_at is not null and due_at is null and claim is null order by expires_at limit 2000) x
    order by lane, expires_at) j
  cross join lateral (select * from sluice.lane where id = j.lane order by v desc limit 1) l where l.list <> 0;
  if v_lanes is null then return v_ended; end if;
  select array_agg(n.bucket), array_agg(n.need) into v_buckets, v_needs from (
    select distinct b.bucket, greatest(b.cost, 1) as need
    from generate_subscripts(v_lanes, 1) k
    cross join unnest(v_lanes[k].buckets, string_to_array(v_costs[k], ',')::bigint[]) b (bucket, cost)
    where b.bucket is not null) n;
  select array_agg(case when r.version is null then v_now else r.next end order by r.ord),
         array_agg(least(v_needs[r.ord], r.most) order by r.ord) into v_room, v_capped
  from unnest(engine.bucket_room(v_buckets, v_now, true, v_needs)) r;
  if (select min(f) from unnest(v_first) f) > (select max(r) from unnest(v_room) r) then return 0; end if;
  -- Room and grants are read by one statement: otherwise units that are given back in between would be in neither.
  -- A bucket of which the vendor refused requests may have room as soon as it accepts one: its short holds end then.
  v_back := array(select case when r.version is null or r.trial_us > 0 and r.hold <= v_now + 60000000 then v_now
      else r.next end
    from unnest(engine.bucket_room(v_buckets, v_now, true, array(
    select b.need - g.units from unnest(v_buckets, v_capped) with ordinality b (id, need, o)
    join (select i.id, engine.count_refundable_units(i.id, h.since, v_now) as units
          from (select distinct id from unnest(v_buckets) u (id)) i
          left join (select sluice.hash64(t.name) as bucket, min(c.at) as since
               from sluice.claim c cross join unnest(c.lanes, c.seqs) s (lane, seq)
               join sluice.job j on j.lane = s.lane and j.seq = s.seq and j.due_at is null and j.claim = c.id
               cross join unnest(j.buckets) t (name) group by 1) h on h.bucket = i.id) g on g.id = b.id
    order by b.o), true)) r);
  for k in 1 .. cardinality(v_lanes) loop
    select max(u.back), (array_agg(u.bucket order by u.back desc))[1] into v_at, v_of
    from unnest(v_buckets, v_needs, v_back) u (bucket, need, back)
    join unnest(v_lanes[k].buckets, string_to_array(v_costs[k], ',')::bigint[]) b (bucket, cost)
      on b.bucket = u.bucket and greatest(b.cost, 1) = u.need;
    continue when v_first[k] > v_at;
    with hopeless as (
      select id from sluice.job
      where lane = v_lanes[k].id and expires_at <= engine.store_time(v_at) and due_at is null and claim is null
        and not exists (select 1 from unnest(costs, string_to_array(v_costs[k], ',')::bigint[]) x (own, first)
                        where x.own < x.first)
      order by expires_at limit v_most - v_ended for update skip locked
    ), gone as (delete from sluice.job j where j.id = any (array(select id from hopeless)) returning j.*)
    select array_agg(g::sluice.job) into v_jobs from gone g;
    continue when v_jobs is null;
    v_ended := v_ended + cardinality(v_jobs);
    perform engine.record_failed_jobs(v_jobs, 'expired', 'SLUICE_NO_ROOM_IN_TIME', (
      select format('limit "%s"%s has no room before %s, and the job had to begin by %%s', b.name,
                    case when b.key <> '' then format(' of "%s"', replace(b.key, '%', '%%')) else '' end,
                    engine.format_utc(engine.store_time(v_at)))
      from sluice.bucket b where b.id = v_of));
  end loop;
  return v_ended;
end $$;
