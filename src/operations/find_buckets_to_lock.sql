-- Returns what `engine.lock_buckets` locks for a key of a limit: its bucket; for all keys (p_key is ''), also those to
-- come, every stripe.
create or replace function engine.find_buckets_to_lock(p_name text, p_key text)
returns bigint[] language plpgsql stable as $$
begin
  if p_key <> '' then return array[sluice.hash64(p_name || ':' || p_key)]; end if;
  return array(select generate_series(0, 1023)::bigint);
end $$;
