-- Makes room for a job that replaces the one which brought this idempotency key before. One that has not begun goes, and
-- its id is returned, to be used again; else (it runs, it has ended, there was none) the key is p_id's from now on, and
-- p_id is returned. The key is kept for p_seconds.
create or replace function sluice.replace_v1(p_task text, p_key text, p_id uuid, p_seconds integer) returns uuid
language plpgsql as $$
declare
  v_until timestamptz := sluice.now() + make_interval(secs => p_seconds);
  v_holder uuid;
begin
  insert into sluice.idempotency as i (task, key, job, expires_at) values (p_task, p_key, p_id, v_until)
  on conflict (task, key) do update set expires_at = excluded.expires_at
  returning i.job into v_holder;
  delete from sluice.job where id = v_holder and claim is null;
  if found then return v_holder; end if;
  update sluice.idempotency set job = p_id where task = p_task and key = p_key;
  return p_id;
end $$;
