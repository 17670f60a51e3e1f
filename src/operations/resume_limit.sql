-- Ends the pause of a limit, or of one key of it. Lanes that wait for it, or for its pool, are looked at, and the
-- workers and takers are woken. A hold that a vendor requested stays, because it is in the ledger. Returns false when
-- nothing was paused.
-- p_key: the key; '': the limit
create or replace function engine.resume_limit(p_name text, p_key text) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_buckets bigint[];
  v_now bigint;
begin
  if not exists (select 1 from sluice.limit_pause where name = p_name and key = p_key) then return false; end if;
  perform engine.lock_buckets_and_pools(engine.find_buckets_to_lock(p_name, p_key));
  delete from sluice.limit_pause where name = p_name and key = p_key;
  if not found then return false; end if;
  v_now := engine.limiter_now_us();
  v_buckets := array(select b.id from sluice.bucket b where b.name = p_name and (p_key in ('', b.key) or b.key = '*'));
  update sluice.list set due = v_now where due > v_now and id <> 0 and id = any (v_buckets);
  perform pg_notify('sluice.wake', '*');
  perform engine.notify_takers(v_buckets, v_now);
  perform engine.notify_event('paused', jsonb_build_object('limit', p_name, 'key', p_key, 'isPaused', false));
  return true;
end $$;
