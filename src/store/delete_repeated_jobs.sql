-- Deletes jobs that this transaction has inserted under an id that a job in history has: they were sent and have ended
-- before. The primary key of sluice.job does not show that, because history is in other tables. It is a statement of
-- its own, so that it also sees jobs that ended during the insert. A repeatable read or serializable transaction does
-- not see jobs that ended after its snapshot, but a unique index does: so there this function inserts marker rows into
-- history and rolls them back. If a marker collides, it fails with 40001 (could not serialize access), after which
-- callers at these levels repeat their transaction anyway.
-- p_ids: the inserted jobs.
create or replace function engine.delete_repeated_jobs(p_ids uuid[]) returns void language plpgsql as $$
declare
  v_job sluice.job;
  v_markers engine.ending[] := '{}';
begin
  -- Without OFFSET the planner may read all of history into hash tables.
  delete from sluice.job j using unnest(p_ids) k (id)
  where j.id = k.id and (exists (select 1 from sluice.done d where d.id = k.id offset 0)
                      or exists (select 1 from sluice.failed f where f.id = k.id offset 0));
  if current_setting('transaction_isolation') not in ('repeatable read', 'serializable') then return; end if;
  begin
    v_job.task := ''; v_job.queue := ''; v_job.priority := 0; v_job.throttled := 0; v_job.crashes := 0;
    v_job.created_at := sluice.now();
    for v_job.id in select j.id from sluice.job j where j.id = any (p_ids) loop
      v_markers := v_markers || row(v_job, 'marker', null, 0, 0, false, null, null, null, null)::engine.ending;
    end loop;
    perform engine.append_history('done', v_markers), engine.append_history('failed', v_markers);
    raise exception 'nothing unseen' using errcode = 'SLW02';
  exception
    when sqlstate 'SLW02' then null;
    when unique_violation then
      raise exception 'could not serialize access due to concurrent update' using errcode = 'serialization_failure';
  end;
end $$;
