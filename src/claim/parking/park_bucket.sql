-- Parks a bucket, and returns its name. A parked bucket has no room, so lanes wait in its list, which is not due at any
-- time. Call under the locks of a claim's classes, or of none.
-- p_fault: the bucket, and the error that its data caused
create or replace function engine.park_bucket(p_fault engine.fault) returns text language plpgsql as $$
declare
  v_name text;
  v_now timestamptz := sluice.now();
begin
  perform engine.lock_buckets(array[p_fault.id]);
  update sluice.bucket b set parked = true where b.id = p_fault.id
  returning b.name || case when b.key = '' then '' else ':' || b.key end into v_name;
  insert into sluice.parked as p (kind, id, name, error, code, at)
    values ('bucket', p_fault.id, v_name, p_fault.error, p_fault.code, v_now)
  on conflict (kind, name) do update set error = excluded.error, code = excluded.code;
  return v_name;
end $$;
