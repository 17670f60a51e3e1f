-- Returns a report for `engine.append_attempt` about an attempt that its worker does not report, because the job was
-- cancelled or the worker was lost.
-- p_from, p_until: when the attempt began and ended
create or replace function engine.attempt_report(
  p_from timestamptz, p_until timestamptz, p_worker bigint, p_host text, p_version text) returns text
language sql immutable as $$
  select '[{"ms":' || greatest(0, floor(extract(epoch from p_until - p_from) * 1000))::bigint || ',"w":' || p_worker
    || ',"host":' || to_json(p_host) || ',"v":' || to_json(p_version) || '}]'
$$;
