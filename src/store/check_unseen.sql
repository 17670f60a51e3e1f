-- Fails with 40001 (could not serialize access) if a job with one of these ids finished after the snapshot of this
-- transaction, which is repeatable read or serializable. No query in such a transaction can see that history row; only
-- a unique index can, so this function inserts probe rows and rolls them back. Callers at these isolation levels repeat
-- their transaction on 40001 anyway.
create or replace function engine.check_unseen(p_ids uuid[]) returns void language plpgsql as $$
declare
  v_job sluice.job;
  v_probes engine.ending[] := '{}';
begin
  v_job.task := ''; v_job.queue := ''; v_job.priority := 0; v_job.throttled := 0; v_job.crashes := 0;
  v_job.created_at := sluice.now();
  for v_job.id in
    select i from unnest(p_ids) i where not exists (select 1 from sluice.done d where d.id = i)
      and not exists (select 1 from sluice.failed f where f.id = i)
  loop
    v_probes := v_probes || row(v_job, 'probe', null, 0, 0, false, null, null, null, null)::engine.ending;
  end loop;
  perform engine.append_history('done', v_probes);
  perform engine.append_history('failed', v_probes);
  raise exception 'nothing unseen' using errcode = 'SLW02';
exception
  when sqlstate 'SLW02' then null;
  when unique_violation then
    raise exception 'could not serialize access due to concurrent update' using errcode = 'serialization_failure';
end $$;
