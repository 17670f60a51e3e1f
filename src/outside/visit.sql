-- Locks a bucket, which is made when nobody has used it yet, and brings it to the definition in force. What it locks is
-- kept to the end of the transaction, so that nobody retires the bucket meanwhile.
create or replace function engine.visit(p_take text) returns void language plpgsql as $$
declare
  v_bucket bigint := sluice.hash64(p_take);
begin
  perform pg_advisory_xact_lock_shared(1397511523, -8);
  insert into sluice.bucket (id, name, key)
  select v_bucket, split_part(p_take, ':', 1), substr(p_take, length(split_part(p_take, ':', 1)) + 2)
  where not exists (select 1 from sluice.bucket where id = v_bucket) on conflict do nothing;
  perform engine.lock_to_give(array[v_bucket]);
  perform engine.renew(array[v_bucket]);
end $$;
