-- Pauses a limit, or one key of it, for jobs that have not begun, and returns false when no limit of this name is
-- defined. It waits for claims that are under way.
-- p_key: the key; '': all keys, also those to come
create or replace function engine.pause_limit(p_name text, p_key text, p_reason text, p_by text) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
begin
  if not exists (select 1 from sluice.limit_def where name = p_name) then return false; end if;
  perform engine.lock_buckets(engine.find_buckets_to_lock(p_name, p_key));
  insert into sluice.limit_pause (name, key, reason, by, created_at) values (p_name, p_key, p_reason, p_by, v_now)
  on conflict (name, key) do update set reason = excluded.reason, by = excluded.by;
  perform engine.call_back_grants_ahead(array[
    case p_key when '' then p_name else sluice.hash64(p_name || ':' || p_key)::text end]);
  perform engine.notify_event('paused', jsonb_build_object('limit', p_name, 'key', p_key, 'isPaused', true,
    'reason', p_reason, 'by', p_by));
  return true;
end $$;
