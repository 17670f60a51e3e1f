-- Marks the jobs of each lane, from its bound on, for a claim, and charges what was really found. It leaves a job where
-- it is when another transaction has it locked: only claims lock jobs without waiting. Beyond 64 KiB of inputs and tags
-- it leaves those out, and the worker reads them in a second query: a reply must fit the socket's buffers, else a
-- stopped worker would keep the claim's transaction, and its locks, open. The length of the text counts, because a
-- compressed input is much longer on the wire than in its row.
-- p_take: how many jobs of each lane. p_life: of the grants of each bucket.
-- p_of, p_seqs: the jobs of lanes with costs that were weighed; one that has just become visible was not. p_dead: such
-- a job costs too much and must not run. p_over: portion. All four are null when no lane has costs.
-- p_labels, p_members: resolve; then picks decides for each job what it is charged in.
-- p_rooms: survey.
-- moves: what became of each lane's jobs (advance_lanes.sql).
create or replace function engine.mark_jobs(
  p_claim uuid, p_worker bigint, p_now bigint, p_lane sluice.lane[], p_take integer[], p_buckets bigint[], p_life bigint[],
  p_of bigint[] default null, p_seqs bigint[] default null, p_dead boolean[] default null, p_over integer[] default null,
  p_labels jsonb default null, p_members bigint[] default null, p_rooms engine.room[] default null,
  out granted integer, out jobs text, out moves engine.move[])
language plpgsql as $$
declare
  v_at timestamptz := engine.wall(p_now);
  v_ids bigint[] := array(select l.id from unnest(p_lane) with ordinality l order by l.ordinality);
  v_lanes bigint[];
  v_seqs bigint[];
  v_late uuid[]; v_dead uuid[];
  v_picked bigint[]; v_holds text[]; v_wanted integer;
begin
  if p_labels is not null then
    select p.seqs, p.holds into v_picked, v_holds from engine.picks(p_labels, p_members, p_now, p_lane, p_take, p_of, p_seqs) p;
  end if;
  with ask as (
    select l.id as lane, l.bound, p_take[l.ordinality] as take, l.costed,
      (select min(p_life[array_position(p_buckets, b)]) from unnest(l.buckets) b) as life
    from unnest(p_lane) with ordinality l where p_take[l.ordinality] > 0
  ), seen as (
    select a.lane, a.life, a.take, j.* from ask a cross join lateral (
      select ctid as tid, seq, id, coalesce(since, created_at) as created_at, expires_at <= v_at as late, false as dead from sluice.job
      where lane = a.lane and seq >= a.bound and claim is null and due_at is null
        and case when xmax = '0' then true else engine.lock_job(ctid) end order by seq limit a.take + 1) j where not a.costed
    union all
    select p.lane, (select a.life from ask a where a.lane = p.lane), null, j.tid, j.seq, j.id, j.created_at, j.late or p.dead, p.dead
    from unnest(p_of, p_seqs, p_dead) p (lane, seq, dead) cross join lateral (
      select ctid as tid, o.seq, id, coalesce(since, created_at) as created_at, (expires_at <= v_at) is true as late from sluice.job o
      where o.lane = p.lane and o.seq = p.seq and claim is null and due_at is null limit 1) j  -- one by one: else all jobs are read for none
  ), told as (  -- in this order, whatever order the plan updates them in
    select s.*, row_number() over (rows unbounded preceding) as o,
      p_labels is null and lag(case when s.late then null else s.lane end) over (rows unbounded preceding) = s.lane as is_same,
      lag(s.lane, s.take) over (rows unbounded preceding) is not distinct from s.lane as beyond
    from seen s
  ), taken as (
    update sluice.job j set claim = p_claim, attempt = j.attempt + 1, dispatched_at = v_at,
      holds = string_to_array(v_holds[array_position(v_picked, s.seq)], E'\x1f')
    -- By place alone: with due_at in the condition the index without due rows would be read from end to end. A job that
    -- has just been moved to another lane (reprioritise.sql) is none of this one's: it would be charged to nobody.
    from told s where j.ctid = s.tid and j.claim is null and j.lane = s.lane and s.late is not true and not s.beyond
      and (p_labels is null or s.seq = any (v_picked))
    returning s.o, j.lane, j.seq, j.costs, engine.hand(j, s.life, s.is_same) as told, engine.cargo(j) as cargo
  )
  select count(*), array_agg(t.lane), array_agg(t.seq),
         '[[' || string_agg(t.told || case when t.size <= 65536 then ',' || t.cargo else '' end, '],[') || ']]',
         (select array_agg((m.lane, m.seen, coalesce(k.taken, 0), m.last, m.late, m.more, m.head, c.costs)::engine.move)
          from (select lane, count(*) filter (where not beyond)::integer as seen, max(seq) filter (where not beyond) as last,
                  count(*) filter (where late and not beyond)::integer as late,
                  case when min(take) is null then p_over[array_position(v_ids, lane)] = 0 else bool_or(beyond) end as more,
                  engine.rank(coalesce(max(created_at) filter (where beyond), max(created_at)), 0) as head from told group by lane) m
          left join (select lane, count(*)::integer as taken from taken group by lane) k on k.lane = m.lane
          left join (select s.lane, array_agg(s.units order by s.o) as costs
                     from (select t.lane, u.o, sum(u.cost) as units from taken t, unnest(t.costs) with ordinality u (cost, o) group by 1, 2) s
                     group by 1) c on c.lane = m.lane),
         (select array_agg(id) from told where late and not beyond), (select array_agg(id) from told where dead),
         (select count(*) from told where not beyond and late is not true)
  into granted, v_lanes, v_seqs, jobs, moves, v_late, v_dead, v_wanted
  from (select k.*, sum(octet_length(k.cargo)) over (order by k.o rows unbounded preceding) as size from taken k) t;
  moves := engine.complete_moves(moves, p_lane, p_take, p_over);
  if granted > 0 then
    insert into sluice.claim (id, worker, at, lanes, seqs) values (p_claim, p_worker, p_now, v_lanes, v_seqs);
    -- One that went away meanwhile may have been the one that says what others of its lane have in common.
    if p_labels is null and granted < v_wanted then jobs := engine.adopt(p_claim); end if;
  end if;
  if p_labels is not null and granted > 0 then perform engine.levy(p_claim, p_now, v_lanes, v_seqs); end if;
  perform engine.append_ledger(
    array(select r from unnest(p_rooms) r where u.units[r.ord] > 0 or u.places[r.ord] > 0), p_claim, u.units, u.places)
  from engine.units(p_lane, moves, p_buckets) u where granted > 0 and p_labels is null;
  -- Too late to begin: no token is spent on them.
  if v_late is not null then perform engine.overdue(v_late); end if;
  if v_dead is not null then perform engine.impossible(v_dead); end if;
end $$;
