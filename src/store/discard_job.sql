-- Records a job that a rule discarded at send: it ends as cancelled, without an attempt. Does nothing if a job with
-- this id exists already.
-- p_reason: why the rule discarded it.
-- p_ruled: what each rule did to the job, as JSON.
create or replace function engine.discard_job(
  p_id uuid, p_task text, p_queue text, p_priority integer, p_tags text[], p_input jsonb, p_reason text, p_ruled jsonb)
returns void language plpgsql as $$
declare
  v_job sluice.job;
begin
  if exists (select 1 from sluice.job j where j.id = p_id)
     or exists (select 1 from sluice.failed f where f.id = p_id) then
    return;
  end if;
  v_job.id := p_id; v_job.task := p_task; v_job.queue := p_queue; v_job.priority := p_priority; v_job.tags := p_tags;
  v_job.input := p_input; v_job.ruled := p_ruled; v_job.throttled := 0; v_job.crashes := 0;
  v_job.created_at := sluice.now();
  perform engine.append_history('done',
    array[row(v_job, 'cancelled', p_reason, 0, 0, false, null, null, null, null)::engine.ending]);
exception when unique_violation then null;
end $$;
