-- Lets those of these jobs that wait for another attempt begin now: after a failure, a refusal of the vendor, or a
-- snooze. They keep their attempts and their places in time. A job that its sender, or a rule, has put off is left out.
-- It skips locked rows, but waits for the row if it is the only one: `engine.cancel_waiting_jobs` explains why. Returns
-- the ids of the jobs that may begin now.
create or replace function engine.retry_scheduled(p_ids uuid[]) returns setof uuid language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_ids uuid[];
begin
  if cardinality(p_ids) = 1 then perform 1 from sluice.job where id = p_ids[1] for update; end if;
  v_ids := array(
    select id from sluice.job j where id = any (p_ids)
      and engine.read_scheduled_reason(j) in ('retry', 'throttled', 'snoozed') for update skip locked);
  update sluice.job set due_at = null where id = any (v_ids);
  perform engine.announce_jobs(v_ids);
  return query select unnest(v_ids);
end $$;
