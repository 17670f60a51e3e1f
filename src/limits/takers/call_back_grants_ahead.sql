-- Calls back what was granted ahead of time (engine.grant_ahead) and has not begun, because what allowed it has
-- changed: all workers, and processes with takes, give it back when they are notified.
-- p_what: ids of buckets, names of limits and ids of jobs, in any order; null: everything.
create or replace function engine.call_back_grants_ahead(p_what text[]) returns void language plpgsql as $$
declare
  v_what text := coalesce(array_to_string(p_what, ','), '');
begin
  if p_what = '{}' then return; end if;
  -- A payload has at most 8,000 bytes; beyond that everything comes back.
  if octet_length(v_what) >= 7900 then v_what := ''; end if;
  perform pg_notify('sluice.wake', '!' || v_what), pg_notify('sluice.take', '!' || v_what);
end $$;
