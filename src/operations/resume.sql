-- Has a limit, or one key of it (p_key '': the limit), grant again: lanes that wait for it, or its pool, are looked at, and the workers
-- are woken. What the vendor asked for stays: a bucket's hold is in its ledger. False when it was not paused.
create or replace function engine.resume(p_name text, p_key text) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_buckets bigint[];
  v_now bigint;
begin
  if not exists (select 1 from sluice.limit_pause where name = p_name and key = p_key) then return false; end if;
  perform engine.lock_to_give(engine.keys(p_name, p_key));
  delete from sluice.limit_pause where name = p_name and key = p_key;
  if not found then return false; end if;
  v_now := engine.limiter_us();
  v_buckets := array(select b.id from sluice.bucket b where b.name = p_name and (p_key in ('', b.key) or b.key = '*'));
  update sluice.list set due = v_now where due > v_now and id = any (v_buckets);
  perform pg_notify('sluice.wake', '*');
  return true;
end $$;
