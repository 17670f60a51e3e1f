-- Marks the next p_take jobs of one lane for a claim, as mark_v1 does for many: what is late to begin is ended, and nothing charged
-- for it. p_life: of their grants. moves: what became of the lane's jobs; one element.
create or replace function sluice.draw_v1(
  p_claim uuid, p_worker bigint, p_now bigint, p_lane sluice.lane, p_take integer, p_life bigint,
  out granted integer, out jobs json, out moves sluice.move[])
language plpgsql as $$
declare
  v_at timestamptz := sluice.wall_v1(p_now);
  v_lane constant bigint := p_lane.id;
  v_bound constant bigint := p_lane.bound;
  v_seqs bigint[];
  v_late uuid[];
begin
  with seen as (
    select ctid as tid, seq, id, coalesce(since, created_at) as since, expires_at <= v_at as late from sluice.job
    where lane = v_lane and seq >= v_bound and claim is null and due_at is null order by seq limit p_take
  ), taken as (
    -- By place, and only what is still of this lane: mark_v1.
    update sluice.job j set claim = p_claim, attempt = j.attempt + 1, dispatched_at = v_at, holds = null from seen s
    where j.ctid = s.tid and j.claim is null and j.lane = v_lane and s.late is not true returning j as job
  )
  select count(*), array_agg((t.job).seq),
    ('[' || string_agg(sluice.hand_v1(t.job, p_life, t.input, t.size <= 65536, t.o > 1), ',') || ']')::json,
    (select array[(v_lane, count(*), (select count(*) from taken), max(seq), count(*) filter (where late),
             sluice.rank_v1(max(since), 0), null)::sluice.move] from seen),
    (select array_agg(id) from seen where late)
  into granted, v_seqs, jobs, moves, v_late
  from (select k.*, row_number() over (rows unbounded preceding) as o,
               sum(octet_length(k.input) + coalesce(octet_length(array_to_string((k.job).tags, '')), 0)) over (rows unbounded preceding) as size
        from (select job, (job).input::text as input from taken offset 0) k) t;
  if granted > 0 then
    insert into sluice.claim (id, worker, at, lanes, seqs)
    values (p_claim, p_worker, p_now, array_fill(v_lane, array[granted]), v_seqs);
  end if;
  if v_late is not null then perform sluice.overdue_v1(v_late); end if;
end $$;
