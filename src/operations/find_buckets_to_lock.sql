-- Returns what `engine.lock_buckets` locks for a key of a limit: its bucket; for all keys (p_key is ''), also those to
-- come, every stripe.
create or replace function engine.find_buckets_to_lock(p_name text, p_key text)
returns bigint[] language sql stable as $$
  select case when p_key = '' then array(select generate_series(0, 1023)::bigint)
              else array[sluice.hash64(p_name || ':' || p_key)] end
$$;
