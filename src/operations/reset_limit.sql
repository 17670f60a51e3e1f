-- Ends the holds of a vendor's bad answers on a limit, for all keys or for one, and returns how many buckets were held.
-- p_key: the key; '': all keys
create or replace function engine.reset_limit(p_name text, p_key text) returns bigint
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_buckets constant bigint[] := array(
    select b.id from sluice.refusal r join sluice.bucket b on b.id = r.bucket
    where (b.name = p_name or strpos(b.name, p_name || '/') = 1) and p_key in ('', b.key));
begin
  perform engine.accept_buckets(v_buckets, null, null);
  return cardinality(v_buckets);
end $$;
