-- Marks the next jobs of each lane for a claim, appends what they hold to the ledger, and returns them as text.
-- It skips jobs that other transactions have locked: a claim never waits for a job. It skips jobs that were just moved
-- to another lane (`engine.move_jobs`), because nobody would be charged for them.
-- A reply must fit the socket's buffers, or a stopped worker would keep the claim's transaction, and its locks, open.
-- So inputs and tags extra 64 KiB are left out, and the worker reads them in a second query. The length of the text
-- counts, because a compressed input is much longer on the wire than in its row.
-- The update finds jobs by place (ctid) alone: with due_at in its condition, the index without due rows would be read
-- from end to end. When a job went away meanwhile, all jobs are returned again, because the missing one may have
-- carried what the others of its lane have in common.
-- p_share: how many jobs of each lane to mark; of lanes with costs exactly the jobs that were read, because others may
-- have become visible meanwhile.
-- p_labels: set: `engine.choose_charged_buckets` decides which buckets each job charges
create or replace function engine.mark_jobs(
  p_claimer engine.claimer, p_lanes sluice.lane[], p_room engine.claim_room, p_share engine.division,
  p_ahead engine.ahead, p_labels jsonb) returns engine.marked
language plpgsql as $$
declare
  v_ids constant bigint[] := array(select l.id from unnest(p_lanes) with ordinality l order by l.ordinality);
  v_done engine.marked; v_late uuid[]; v_picked bigint[]; v_charged text[]; v_wanted int;
  v_buckets constant bigint[] := p_room.buckets; v_rooms constant engine.room[] := p_room.rooms;
  v_at constant timestamptz := p_room.at; v_instants constant bigint[] := p_ahead.instants;
begin
  if p_labels is not null then
    select c.seqs, c.charged_buckets, c.buckets, c.rooms into v_picked, v_charged, p_room.buckets, p_room.rooms
    from engine.choose_charged_buckets(p_labels, p_lanes, p_room, p_share) c; end if;
  with wanted as (
    select l.id as lane, l.list, l.bound, p_share.take[l.ordinality] as take, l.costed, l.buckets,
      (select min((v_rooms[array_position(v_buckets, b)]).life) from unnest(l.buckets) b) as life
    from unnest(p_lanes) with ordinality l where p_share.take[l.ordinality] > 0
  ), seen as (
    select a.lane, a.list, a.life, a.buckets, a.take, j.* from wanted a cross join lateral (
      select ctid as tid, seq, id, coalesce(since, created_at) as created_at, (expires_at <= v_at) is true as late
      from sluice.job where lane = a.lane and seq >= a.bound and claim is null and due_at is null
        and case when xmax = '0' then true else engine.try_lock_job(ctid) end order by seq limit a.take + 1) j
    where not a.costed union all
    select p.lane, a.list, a.life, a.buckets, null, j.tid, j.seq, j.id, j.created_at, false
    from unnest(p_share.of, p_share.seqs) p (lane, seq)  -- one job at a time: otherwise the plan reads all jobs
    cross join lateral (select list, life, buckets from wanted where lane = p.lane limit 1) a cross join lateral (
      select ctid as tid, o.seq, id, coalesce(since, created_at) as created_at
      from sluice.job o where o.lane = p.lane and o.seq = p.seq and claim is null and due_at is null limit 1) j
  ), numbered as (  -- numbered here, because the plan may update rows in any order
    select s.*, row_number() over (rows unbounded preceding) as o,
      p_labels is null and lag(case when s.late then null else s.lane end) over (rows unbounded preceding) = s.lane
        as is_same, lag(s.lane, s.take) over (rows unbounded preceding) is not distinct from s.lane as extra
    from seen s), ready as (
    select s.*, row_number() over (rows unbounded preceding) as nth from numbered s
    where not s.late and not s.extra and (p_labels is null or s.seq = any (v_picked))
  ), taken as (
    update sluice.job j set claim = p_claimer.claim, attempt = j.attempt + 1,
      dispatched_at = v_at + make_interval(secs => coalesce(v_instants[s.nth] - p_room.now_us, 0) / 1e6),
      charged_buckets = string_to_array(v_charged[array_position(v_picked, s.seq)], E'\x1f')
    from ready s where j.ctid = s.tid and j.claim is null and j.lane = s.lane
    returning s.o, j.lane, j.seq, j.costs, j.costs[cardinality(j.costs)] as units, j.charged_buckets, s.buckets,
      engine.encode_job(j, s.life, s.is_same, s.list) as head, engine.encode_job_payload(j) as payload
  ), charge as (
    select array_agg(c.units order by c.b) as units, array_agg(c.places order by c.b) as places from (
      select u.b, sum(u.n * u.cost) as units, sum(u.n) as places from (
        select array_position(p_room.buckets, coalesce(sluice.hash64(h[o]), id)) as b, n, coalesce(c[o], 1) as cost
        from (select buckets, charged_buckets as h, costs as c, count(*) as n from taken group by 1, 2, 3) t,
             unnest(buckets) with ordinality l (id, o)
        union all select b, 0, 0 from generate_subscripts(p_room.buckets, 1) b) u group by 1) c
  )
  select count(*), array_agg(t.lane), array_agg(t.seq),
         '[[' || string_agg(t.head || case when t.size <= 65536 then ',' || t.payload else '' end, '],[') || ']]',
         (select array_agg((lane, m.seen, coalesce(k.n, 0), m.last, m.more, m.rank, k.units)::engine.move)
          from (select lane, count(*) filter (where not extra and not late)::integer as seen,
              max(seq) filter (where not extra and not late) as last,
              case when min(take) is null then p_share.over[array_position(v_ids, lane)] = 0
                else bool_or(extra) end as more,
              engine.lane_rank(coalesce(max(created_at) filter (where extra), max(created_at)),
                p_lanes[array_position(v_ids, lane)].priority) as rank from numbered group by lane) m
          left join (select lane, count(*)::integer as n, sum(units) as units from taken group by 1) k using (lane)),
         (select array_agg(id) from numbered where late), (select count(*) from numbered where not extra and not late),
         (select units from charge), (select places from charge)
  into v_done.granted, v_done.lanes, v_done.seqs, v_done.jobs, v_done.moves, v_late, v_wanted, v_done.units,
       v_done.places
  from (select k.*, sum(octet_length(k.payload)) over (order by k.o rows unbounded preceding) as size from taken k) t;
  v_done.moves := engine.complete_lane_moves(v_done.moves, p_lanes, p_share.take, p_share.over);
  v_done.fewer := p_labels is null and v_done.granted < v_wanted;
  if (case when v_done.granted > 0 then engine.record_claim(p_claimer, p_lanes, p_room, p_ahead, v_done) end)
  then v_done.jobs := ''; end if;
  if v_late is not null then perform engine.set_aside_jobs(v_late, v_at); end if;
  return v_done;
end $$;
