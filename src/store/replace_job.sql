-- Prepares the insertion of a job that replaces the job which has its idempotency key. If that job waits and no attempt
-- of it was made, it is deleted, and the new job takes over its id. If it runs, was attempted or snoozed, or has ended,
-- it stays, and the key passes to p_id. A call with a p_id that was used before is the same send, repeated because its
-- reply was lost: it replaces nothing more, and returns the key's present job, whatever has happened to that job
-- meanwhile.
-- p_task, p_key: the idempotency key.
-- p_id: the new job's id.
-- p_seconds: how long the key is kept.
-- Returns the id that the new job has to use.
create or replace function engine.replace_job(p_task text, p_key text, p_id uuid, p_seconds integer) returns uuid
language plpgsql as $$
declare
  v_task text := coalesce((select t.currently from sluice.task t where t.name = p_task), p_task);
  v_holder uuid := (select k from engine.take_idempotency_keys(p_task, array[p_key], array[p_id], p_seconds) k);
  v_sent uuid[];
begin
  -- `sent` has the last 20 ids that replaced. A fresh key has none yet, so that it is not taken for a repetition.
  update sluice.idempotency set expires_at = sluice.now() + make_interval(secs => p_seconds)
  where task = v_task and key = p_key returning sent into v_sent;
  if p_id = any (v_sent) then return v_holder; end if;
  -- A snooze does not count as an attempt, and leaves a record.
  delete from sluice.job where id = v_holder and claim is null and attempt = 0 and attempts is null;
  if not found then v_holder := p_id; end if;
  update sluice.idempotency set job = v_holder, sent = (p_id || coalesce(v_sent, '{}'))[:20]
  where task = v_task and key = p_key;
  return v_holder;
end $$;
