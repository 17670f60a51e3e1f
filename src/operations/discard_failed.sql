-- Takes failed jobs out of the failed ones for good: they are cancelled from now on, with their records, and are kept
-- as long as done jobs. Skips jobs that another call retries or discards at this moment. Returns the ids of the jobs
-- that it discarded.
-- p_reason: stored with each job
create or replace function engine.discard_failed(p_ids uuid[], p_reason text) returns setof uuid language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_ids uuid[] := array(select id from sluice.failed where id = any (p_ids) order by id for update skip locked);
  v_job sluice.failed;
begin
  for v_job in delete from sluice.failed where id = any (v_ids) returning * loop
    v_job.state := 'cancelled'; v_job.reason := p_reason; v_job.finished_at := sluice.now();
    insert into sluice.done values (v_job.*);  -- both tables have the same columns in the same order
  end loop;
  return query select unnest(v_ids);
end $$;
