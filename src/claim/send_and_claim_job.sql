-- Sends one job as `engine.send_lane_jobs` does, and claims it in the same transaction for an idle worker of its
-- sender's process, if no job waits ahead of it and its limits have room now. So nobody has to be notified, and nothing
-- has to be read again. It waits for no lock: when it cannot lock a bucket at once, it only sends the job.
-- p_claim: id of the claim.
-- p_worker: a worker that has a free slot and serves the job's queue and task.
-- p_class .. p_alone: as in `engine.send_lane_jobs`, for one job.
-- now_us, jobs, redis_epoch: of the claim, but without the input, which the sender has. Null: the job was only sent.
create or replace function engine.send_and_claim_job(
  p_claim uuid, p_worker bigint, p_cap bigint, p_class bigint, p_lane bigint, p_queue text, p_task text,
  p_priority integer, p_weight integer, p_fair text, p_buckets text, p_ids uuid[], p_inputs text, p_alone boolean,
  out now_us bigint, out jobs text, out redis_epoch text)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off as $$
declare
  v_idle constant record := engine.find_idle_lane(p_worker, p_class, p_lane);
  v_lane constant sluice.lane := v_idle.lane;
  v_at constant timestamptz := sluice.now();
  v_bucket bigint;
  v_locked boolean := true;
  v_is engine.claim_room;
  v_room engine.room;
  v_free bigint := 1;
  v_life bigint;
  v_seq bigint;
  v_units bigint[];
begin
  if v_lane.id is not null then
    foreach v_bucket in array v_lane.buckets loop
      v_locked := v_locked and pg_try_advisory_xact_lock(1397511523, (v_bucket & 1023)::integer);  -- lock: bucket
    end loop;
  end if;
  if v_lane.id is not null and v_locked then
    v_is := engine.read_claim_room(v_lane.buckets, '{}', v_lane.buckets, array[p_lane], p_cap);
    foreach v_room in array v_is.rooms loop
      v_life := least(v_life, v_room.life); v_free := least(v_free, v_room.avail); end loop;
    if v_free > 0 and not v_is.on_trial and v_is.stale is null then
      now_us := v_is.now_us; redis_epoch := v_idle.redis_epoch;
      v_seq := nextval('sluice.job_seq_seq');
      -- The claim's row comes before the job's: docs/architecture.md, "Locks".
      insert into sluice.claim (id, worker, at, lanes, seqs)
      values (p_claim, p_worker, now_us, array[p_lane], array[v_seq]);
      insert into sluice.job as j (id, seq, lane, priority, created_at, task, queue, fair, buckets, input, weight,
        claim, attempt, dispatched_at)
      values (p_ids[1], v_seq, p_lane, p_priority, v_at, p_task, p_queue, p_fair, string_to_array(p_buckets, E'\x1f'),
        p_inputs::jsonb, nullif(p_weight, 1), p_claim, 1, greatest(v_at, v_is.at))
      returning '[[' || engine.encode_job(j, v_life, false, null) || ']]' into jobs;
      v_units := array_fill(1::bigint, array[cardinality(v_lane.buckets)]);
      perform engine.append_ledger(v_is.rooms, p_claim, v_units, v_units);
      return;
    end if;
  end if;
  perform engine.send_lane_jobs(
    p_class, p_lane, p_queue, p_task, p_priority, p_weight, p_fair, p_buckets, p_ids, p_inputs, p_alone);
end $$;
