-- Parks a bucket: from now on it has no room, so that lanes wait in its list, with no time at which it is due. Call
-- under the locks of a claim's classes, or of none. Returns its name.
-- p_fault: the bucket, and what it failed with
create or replace function engine.park_bucket(p_fault engine.fault) returns text language plpgsql as $$
declare
  v_name text;
  v_now timestamptz := sluice.now();
begin
  perform engine.lock(array[p_fault.id]);
  update sluice.bucket b set parked = true where b.id = p_fault.id
  returning b.name || case when b.key = '' then '' else ':' || b.key end into v_name;
  insert into sluice.parked as p (kind, id, name, error, code, at)
    values ('bucket', p_fault.id, v_name, p_fault.error, p_fault.code, v_now)
  on conflict (kind, name) do update set error = excluded.error, code = excluded.code;
  return v_name;
end $$;
