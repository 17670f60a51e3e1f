-- Puts in force what the fleet has found (a rate, limits/adaptive.ts) or measured (a margin, limits/margin.ts). Returns
-- false, and changes nothing, if the limit's definition has changed since it was read, because another process was
-- first. For a margin it also returns false if another process has joined, which has measured nothing yet, or if the
-- measurements were read more than three seconds ago: a process relies on a longer way four seconds after it has
-- reported that (limits/samples.ts).
-- p_version: the newest version when it was read.
-- p_source: found or measured.
-- p_known: how many processes were known when it was read; null: it does not matter.
-- p_read: when that was, by the store's clock, in microseconds; null: it does not matter.
-- p_spec, p_columns, p_by, p_reason: as for engine.define_limit.
create or replace function engine.adapt_limit(p_name text, p_version integer, p_source text, p_known integer,
  p_read bigint, p_spec jsonb, p_columns jsonb, p_by text, p_reason text)
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
begin
  -- This lock comes before those of the buckets, as in engine.define_limit.
  perform pg_advisory_xact_lock(1397511523, -7);  -- lock: definitions
  if p_version is distinct from (
      select max(d.version) from sluice.limit_def d where d.name = p_name and d.key = '')
    or p_known <> (select count(*) from sluice.measured m where m.name = p_name)
    or sluice.now_us() - p_read not between 0 and 3000000 then
    return false;
  end if;
  perform engine.propose_definition(p_name, p_source, '', p_spec, p_columns, p_by, p_reason);
  perform engine.apply_definition(p_name, p_by, p_reason);
  return true;
end $$;
