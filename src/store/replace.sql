-- Makes room for a job that replaces the one which brought this idempotency key before. One that has not begun goes, and
-- its id is returned, to be used again; else (it runs, it has ended, there was none) the key is p_id's from now on, and
-- p_id is returned. The key is kept for p_seconds. The same p_id again is the same send, whose reply was lost: it
-- replaces nothing more, and gets what it got, whatever became of that meanwhile.
create or replace function engine.replace(p_task text, p_key text, p_id uuid, p_seconds integer) returns uuid
language plpgsql as $$
declare
  v_until timestamptz := sluice.now() + make_interval(secs => p_seconds);
  v_holder uuid;
  v_sent uuid[];
begin
  -- The last 20 that replaced. A fresh key has none yet, so that it is not taken for a repetition.
  insert into sluice.idempotency as i (task, key, job, expires_at) values (p_task, p_key, p_id, v_until)
  on conflict (task, key) do update set expires_at = excluded.expires_at
  returning i.job, i.sent into v_holder, v_sent;
  if p_id = any (v_sent) then return v_holder; end if;
  delete from sluice.job where id = v_holder and claim is null and attempt = 0;
  if not found then v_holder := p_id; end if;
  update sluice.idempotency set job = v_holder, sent = (p_id || coalesce(v_sent, '{}'))[:20] where task = p_task and key = p_key;
  return v_holder;
end $$;
