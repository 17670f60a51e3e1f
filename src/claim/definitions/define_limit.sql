-- Records what a source (code, stored, pinned) defines for a limit, and puts the definition that all sources give in
-- force (`engine.apply_definition`). Returns true when the source's definition is in force, false when a higher source
-- overrides it, and null when the source repeats its definition.
-- p_digest: identifies a definition among those of code; empty for operators.
-- p_spec: the definition; null: the source withdraws it.
-- p_columns: the arrays of sluice.limit_def.
-- p_by, p_reason: who changes it, and why.
-- p_key: the key for which an operator defines numbers; '': all keys.
create or replace function engine.define_limit(
  p_name text, p_source text, p_digest text, p_spec jsonb, p_columns jsonb, p_by text, p_reason text,
  p_key text default '')
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
begin
  -- Most processes find their definition recorded already: they wait for no lock.
  if p_source = 'code' and exists (
    select 1 from sluice.limit_source s
    where s.name = p_name and s.source = 'code' and s.digest = p_digest and s.gone_at is null
      and s.spec = p_spec and s.columns = p_columns) then
    perform engine.renew_definitions(array[p_name], array[p_digest]);
    return null;
  end if;
  -- This lock comes before those of the buckets, because a transaction that holds it (engine.lock_definitions) may
  -- wait for buckets.
  perform pg_advisory_xact_lock(1397511523, -7);  -- lock: definitions
  if not engine.propose_definition(
    p_name, p_source, p_digest, p_spec, p_columns, p_by, p_reason, p_key) then
    return null;
  end if;
  -- Ends what no live process has any more.
  if p_source = 'code' then perform engine.renew_definitions(array[p_name], array[p_digest]); end if;
  return coalesce((engine.apply_definition(p_name, p_by, p_reason, p_key)).source = p_source, false);
end $$;
