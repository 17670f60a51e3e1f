-- Marks the next p_take jobs of one lane without costs for a claim, as mark_jobs does for many. p_life: of their grants. moves: what
-- became of the lane's jobs; one element.
create or replace function engine.mark_lane(
  p_claim uuid, p_worker bigint, p_now bigint, p_lane sluice.lane, p_take integer, p_life bigint,
  out granted integer, out jobs text, out moves engine.move[])
language plpgsql as $$
declare
  v_at timestamptz := engine.wall(p_now);
  v_lane constant bigint := p_lane.id;
  v_bound constant bigint := p_lane.bound;
  v_seqs bigint[];
  v_late uuid[];
  v_wanted integer;
begin
  with seen as (
    select j.*, row_number() over (rows unbounded preceding) as o from (
      select ctid as tid, seq, id, coalesce(since, created_at) as since, expires_at <= v_at as late from sluice.job
      where lane = v_lane and seq >= v_bound and claim is null and due_at is null
        and case when xmax = '0' then true else engine.lock_job(ctid) end order by seq limit p_take + 1) j
  ), taken as (
    -- By place, and only what is still of this lane: mark_jobs.
    update sluice.job j set claim = p_claim, attempt = j.attempt + 1, dispatched_at = v_at, holds = null from seen s
    where j.ctid = s.tid and j.claim is null and j.lane = v_lane and s.late is not true and s.o <= p_take
    returning j.seq, engine.hand(j, p_life, s.seq > (select min(f.seq) from seen f where f.late is not true)) as told, engine.cargo(j) as cargo
  )
  select t.n, t.seqs, t.jobs, array[(v_lane, s.n, t.n, s.last, s.late, coalesce(s.more, false), engine.rank(s.head, 0), null)::engine.move], s.ids, s.n - s.late
  into granted, v_seqs, jobs, moves, v_late, v_wanted
  from (select count(*) filter (where o <= p_take) as n, max(seq) filter (where o <= p_take) as last, bool_or(o > p_take) as more,
               count(*) filter (where late and o <= p_take) as late, coalesce(max(since) filter (where o > p_take), max(since)) as head,
               array_agg(id) filter (where late and o <= p_take) as ids from seen) s
  cross join (select count(*) as n, array_agg(seq) as seqs,
                     '[[' || string_agg(told || case when size <= 65536 then ',' || cargo else '' end, '],[') || ']]' as jobs
              from (select k.*, sum(octet_length(cargo)) over (order by seq rows unbounded preceding) as size from taken k) w) t;
  moves := engine.complete_moves(moves, array[p_lane], array[p_take], null);
  if granted > 0 then
    insert into sluice.claim (id, worker, at, lanes, seqs)
    values (p_claim, p_worker, p_now, array_fill(v_lane, array[granted]), v_seqs);
    -- One that went away meanwhile may have been the one that says what the others have in common.
    if granted < v_wanted then jobs := engine.adopt(p_claim); end if;
  end if;
  if v_late is not null then perform engine.overdue(v_late); end if;
end $$;
