-- Records the definition that a source gives to a limit. Code of several processes may give several, each under its own
-- digest; an operator's source gives one. Returns false when there was nothing to withdraw.
-- p_name: the limit.
-- p_source: code, found, stored or pinned.
-- p_digest: identifies the definition among those of code; empty for operators.
-- p_spec, p_columns: the definition as JSON, and its columns of sluice.limit_def; p_spec null: the source gives none
-- any more.
-- p_by, p_reason: author and reason, for people.
-- p_key: the key for which an operator defines numbers; '': all keys.
create or replace function engine.propose_definition(
  p_name text, p_source text, p_digest text, p_spec jsonb, p_columns jsonb, p_by text, p_reason text,
  p_key text default '')
returns boolean language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  if p_spec is null then
    delete from sluice.limit_source where name = p_name and key = p_key and source = p_source and digest = p_digest;
    return found;
  end if;
  insert into sluice.limit_source as s (name, key, source, digest, spec, columns, by, reason, at, seen_at, steady_at)
  -- The newest code has the latest time, also when the store's clock was set back.
  values (p_name, p_key, p_source, p_digest, p_spec, p_columns, p_by, p_reason, greatest(v_now, (
    select max(o.at) + interval '1 microsecond' from sluice.limit_source o
    where o.name = p_name and o.source = 'code' and p_source = 'code')), v_now, v_now)
  on conflict (name, key, source, digest) do update set
    spec = excluded.spec, columns = excluded.columns, by = excluded.by, reason = excluded.reason, seen_at = v_now,
    steady_at = case when s.seen_at between v_now - interval '15 seconds' and v_now then s.steady_at else v_now end,
    -- Code that comes back keeps the time of its first appearance: it does not become the newest by starting again.
    at = case when p_source = 'code' then s.at else v_now end,
    -- Code that comes back within an hour of its end (a cron job) counts for an hour from now on: otherwise it would
    -- append a definition each time it comes, and each time it goes.
    keep = case when s.gone_at is null then s.keep
                when s.gone_at > v_now - interval '1 hour' then interval '1 hour' end,
    gone_at = null;
  return true;
end $$;
