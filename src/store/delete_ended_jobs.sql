-- Deletes those of these new jobs whose ids jobs that have ended had before. Jobs that have ended are in other tables,
-- and a statement of its own also sees those that ended meanwhile. A repeatable read or serializable transaction sees
-- none that ended after its snapshot; only a unique index does. There this function inserts probe rows and rolls them
-- back, and fails with 40001 (could not serialize access), on which callers at these levels repeat their transaction
-- anyway.
create or replace function engine.delete_ended_jobs(p_ids uuid[]) returns void language plpgsql as $$
declare
  v_job sluice.job;
  v_probes engine.ending[] := '{}';
begin
  delete from sluice.job j using unnest(p_ids) k (id)
  where j.id = k.id and (exists (select 1 from sluice.done d where d.id = k.id)
                      or exists (select 1 from sluice.failed f where f.id = k.id));
  if current_setting('transaction_isolation') not in ('repeatable read', 'serializable') then return; end if;
  begin
    v_job.task := ''; v_job.queue := ''; v_job.priority := 0; v_job.throttled := 0; v_job.crashes := 0;
    v_job.created_at := sluice.now();
    for v_job.id in select j.id from sluice.job j where j.id = any (p_ids) loop
      v_probes := v_probes || row(v_job, 'probe', null, 0, 0, false, null, null, null, null)::engine.ending;
    end loop;
    perform engine.append_history('done', v_probes), engine.append_history('failed', v_probes);
    raise exception 'nothing unseen' using errcode = 'SLW02';
  exception
    when sqlstate 'SLW02' then null;
    when unique_violation then
      raise exception 'could not serialize access due to concurrent update' using errcode = 'serialization_failure';
  end;
end $$;
