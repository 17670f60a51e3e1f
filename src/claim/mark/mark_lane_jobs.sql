-- Marks the next p_take jobs of one lane without costs for a claim, and appends what they hold to the ledger, as
-- `engine.mark_jobs` does for many lanes.
create or replace function engine.mark_lane_jobs(
  p_claimer engine.claimer, p_lane sluice.lane, p_take integer, p_room engine.claim_room, p_ahead engine.ahead)
returns engine.marked
language plpgsql as $$
declare
  v_done engine.marked;
  v_lane constant bigint := p_lane.id;
  v_bound constant bigint := p_lane.bound;
  v_at constant timestamptz := p_room.at;
  v_instants constant bigint[] := p_ahead.instants;
  v_tids tid[];
  v_seqs bigint[];
  v_sinces timestamptz[];
  v_newest timestamptz;
  v_late uuid[];  -- expired jobs
  v_read integer;
  v_seen integer;
  v_room engine.room;
  v_life bigint;
begin
  foreach v_room in array p_room.rooms loop v_life := least(v_life, v_room.life); end loop;
  select array_agg(j.tid) filter (where not j.late), array_agg(j.seq) filter (where not j.late),
         array_agg(j.since) filter (where not j.late), max(j.since), array_agg(j.id) filter (where j.late), count(*)
  into v_tids, v_seqs, v_sinces, v_newest, v_late, v_read from (
    select ctid as tid, seq, id, coalesce(since, created_at) as since, (expires_at <= v_at) is true as late
    from sluice.job
    where lane = v_lane and seq >= v_bound and claim is null and due_at is null
      and case when xmax = '0' then true else engine.try_lock_job(ctid) end order by seq limit p_take + 1) j;
  v_seen := least(p_take, coalesce(cardinality(v_seqs), 0));
  -- The update finds jobs by place (ctid), and takes only those that are still in this lane, as `engine.mark_jobs`
  -- does. With CASE the planner cannot use the index of lanes, by which it might compare each waiting job with each
  -- place. The first job carries what all have in common.
  with taken as (
    update sluice.job j set claim = p_claimer.claim, attempt = j.attempt + 1, charged_buckets = null,
      dispatched_at = case when v_instants is null then v_at
      else v_at + make_interval(secs => (v_instants[array_position(v_seqs, j.seq)] - p_room.now_us) / 1e6) end
    where j.ctid = any (v_tids[:v_seen])
      and case when j.claim is null then j.lane = v_lane end
    returning j.seq, engine.encode_job(j, v_life, j.seq > v_seqs[1], p_lane.list) as head,
      engine.encode_job_payload(j) as payload
  )
  -- A reply must fit the socket's buffers: inputs beyond 64 KiB are left out.
  select count(*), array_agg(t.seq),
         '[[' || string_agg(t.head || case when t.size <= 65536 then ',' || t.payload else '' end, '],[') || ']]'
  into v_done.granted, v_done.seqs, v_done.jobs
  from (select k.*, sum(octet_length(k.payload)) over (order by seq rows unbounded preceding) as size from taken k) t;
  v_done.moves := array[(
    v_lane, v_seen, v_done.granted, v_seqs[v_seen], v_read > p_take,
    engine.lane_rank(coalesce(v_sinces[v_seen + 1], v_newest), p_lane.priority), null)::engine.move];
  if current_setting('sluice.met_locked', true) = 'yes' then  -- `engine.try_lock_job`
    v_done.moves := engine.complete_lane_moves(v_done.moves, array[p_lane], array[p_take], null);
  end if;
  if v_done.granted > 0 then
    v_done.lanes := array_fill(v_lane, array[v_done.granted]);
    v_done.units := array_fill(v_done.granted::bigint, array[cardinality(p_lane.buckets)]);
    v_done.places := v_done.units; v_done.fewer := v_done.granted < v_seen;
    if engine.record_claim(p_claimer, array[p_lane], p_room, p_ahead, v_done) then v_done.jobs := ''; end if;
  end if;
  if v_late is not null then perform engine.set_aside_jobs(v_late, v_at); end if;
  return v_done;
end $$;
