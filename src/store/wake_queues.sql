-- Notifies the idle workers of these queues that there is new work. Sends no NOTIFY when no worker is idle, because it
-- costs a busy sender most of its throughput, and none for queues that are paused as a whole.
create or replace function engine.wake_queues(p_queues text[]) returns void language plpgsql as $$
declare
  v_names text;
begin
  if exists (
    select 1 from sluice.idle i join sluice.worker w on w.id = i.worker where w.queues is null or w.queues && p_queues)
  then
    v_names := array_to_string(array(select distinct q from unnest(p_queues) q where not exists (
      select 1 from sluice.gate g where g.tasks is null and g.from_min is null
        and engine.matches_patterns(g.queues, q))), ',');
    if v_names = '' then return; end if;
    -- A payload has at most 8,000 bytes; beyond that all idle workers are notified.
    perform pg_notify('sluice.wake', case when octet_length(v_names) < 7900 then v_names else '*' end);
  end if;
end $$;
