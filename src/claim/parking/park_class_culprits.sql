-- Parks what makes claims of a class fail, and returns the names. It parks buckets; if no bucket fails, jobs of the
-- lanes that fail; and a lane itself if none of its jobs fails.
-- p_rehearsal: the claim that failed, with the class
create or replace function engine.park_class_culprits(p_rehearsal engine.rehearsal) returns text[]
language plpgsql as $$
declare
  v_lanes bigint[];
  v_buckets bigint[];
  v_seqs bigint[];
  v_fault engine.fault;
  v_lane engine.fault;
  v_faults engine.fault[];
  v_names text[] := '{}';
  v_count integer;
begin
  perform engine.lock_classes(array[p_rehearsal.class]);
  p_rehearsal.news := engine.read_arrivals(p_rehearsal.class);
  v_lanes := engine.find_suspect_lanes(
    p_rehearsal.class, (p_rehearsal.news).lanes, engine.limiter_now_us(p_rehearsal.cap));
  v_buckets := engine.find_suspect_buckets(p_rehearsal, v_lanes);
  v_faults := array(select f from engine.find_faults(p_rehearsal, 'bucket', v_buckets) f);
  -- Locked together, because buckets are locked in one order.
  perform engine.lock_buckets(array(select f.id from unnest(v_faults) f));
  foreach v_fault in array v_faults loop
    v_names := v_names || engine.park_bucket(v_fault);
  end loop;
  if v_names <> '{}' then return v_names; end if;
  v_faults := array(select f from engine.find_faults(p_rehearsal, 'lane', v_lanes) f);
  if v_faults = '{}' then
    -- A lane may make the seating of another lane fail without ever being served. Then all lanes together fail only in
    -- their own class, and each lane is tried alone.
    v_faults := array(
      select f from unnest(v_lanes[:1000]) u (id), engine.find_faults(p_rehearsal, 'lane', array[u.id]) f);
  end if;
  foreach v_lane in array v_faults loop
    p_rehearsal.lane := v_lane.id;
    v_count := cardinality(v_names);
    -- Jobs stay locked until the transaction ends. Jobs that others have locked are skipped: no claim has met them.
    v_seqs := array(
      select j.seq from sluice.job j where j.lane = v_lane.id and j.claim is null and j.due_at is null
      order by j.seq limit 2 * p_rehearsal.want + 1 for update skip locked);
    for v_fault in select * from engine.find_faults(p_rehearsal, 'job', v_seqs) loop
      v_names := v_names || engine.park_job(v_lane.id, v_fault);
    end loop;
    if cardinality(v_names) = v_count then v_names := v_names || engine.park_lane(v_lane); end if;
  end loop;
  return array_remove(v_names, null);
end $$;
