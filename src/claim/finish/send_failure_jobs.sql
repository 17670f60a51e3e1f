-- Sends the jobs that tasks want for their failed jobs (`onFailed`), in the same transaction.
-- p_ids: the failed jobs.
create or replace function engine.send_failure_jobs(p_ids uuid[]) returns void language plpgsql as $$
begin
  if p_ids = '{}' then return; end if;
  perform engine.send_unchecked(engine.new_id(), f.on_failed, f.queue, f.priority, null, f.tags,
    jsonb_build_object('id', f.id, 'task', f.task,
    'queue', f.queue, 'reason', f.reason, 'error', f.error, 'attempt', f.attempt, 'ambiguous', f.ambiguous,
    'createdAt', f.created_at, 'failedAt', f.finished_at, 'tags', coalesce(to_jsonb(f.tags), '[]'), 'input', f.input))
  from sluice.failed f where f.id = any (p_ids) and f.on_failed is not null;
end $$;
