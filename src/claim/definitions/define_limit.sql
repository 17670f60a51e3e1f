-- Records what a source (code, stored, pinned) defines for a limit, and puts the definition of the highest source in
-- force unless it is already. It waits for all claims that are under way, also for those that make a bucket of this
-- limit, because they may have decided by the old definition. If the new definition has a concurrency it counts the
-- running jobs, and it makes the lists that wait for the limit due, because there may be room now.
-- Returns true when the source's definition is in force, false when a higher source overrides it, and null when the
-- source repeats its definition.
-- p_spec: the definition; null: the source withdraws it.
-- p_columns: the arrays of sluice.limit_def.
-- p_by, p_reason: who changes it, and why.
-- p_age_us: microseconds since the process began whose code this is.
create or replace function engine.define_limit(
  p_name text, p_source text, p_spec jsonb, p_columns jsonb, p_by text, p_reason text, p_age_us bigint)
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_def sluice.limit_def;
  v_now bigint;
  v_buckets bigint[];
  v_running bigint[];
begin
  -- Most processes find their definition recorded already: they wait for no lock.
  if p_source = 'code' and exists (select 1 from sluice.limit_source s where s.name = p_name and s.source = 'code'
     and s.spec = p_spec and s.columns = p_columns) then
    perform engine.propose_definition(p_name, p_source, p_spec, p_columns, p_by, p_reason, p_age_us);
    return null;
  end if;
  -- Before the buckets, because a transaction that holds this lock (engine.lock_definitions) may wait for buckets.
  perform pg_advisory_xact_lock(1397511523, -7);
  if not engine.propose_definition(p_name, p_source, p_spec, p_columns, p_by, p_reason,
    p_age_us) then return null; end if;
  v_def := engine.effective_definition(p_name);
  if v_def.name is null then return false; end if;
  if exists (
    select 1 from (select spec, source from sluice.limit_def where name = p_name order by version desc limit 1) l
    where l.spec = v_def.spec and l.source = v_def.source) then return v_def.source = p_source; end if;
  perform engine.lock_buckets(array(select generate_series(0, 1023)::bigint));
  perform engine.insert_definition(p_name, p_by, p_reason);
  v_now := engine.limiter_now_us();
  if 'concurrency' = any (v_def.kind) then
    select array_agg(r.bucket), array_agg(r.running) into v_buckets, v_running from engine.count_used_places(p_name) r;
    perform engine.append_ledger(array_agg(r::engine.room),
      p_places => array_agg(v_running[r.ord] - r.debt[array_position(r.kind, 'concurrency')] order by r.ord))
    from engine.bucket_room(v_buckets, 0) r;
  end if;
  update sluice.list set due = v_now where due > v_now and id in (select id from sluice.bucket where name = p_name);
  perform pg_notify('sluice.wake', '*');
  return v_def.source = p_source;
end $$;
