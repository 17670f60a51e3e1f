-- Defines a gate, or changes it, and wakes the workers, for what it held back may start now; one that is like this already
-- is left alone. What claims under way have begun they still hand out. The columns of sluice.gate say what is what.
create or replace function sluice.gate_v1(
  p_name text, p_queues text[], p_tasks text[], p_zone text, p_days smallint[], p_from_min integer, p_to_min integer,
  p_reason text, p_by text) returns void language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  perform v_now at time zone p_zone;  -- raises what is wrong with it
  insert into sluice.gate as g (name, queues, tasks, zone, days, from_min, to_min, reason, by, created_at)
  values (p_name, p_queues, p_tasks, p_zone, p_days, p_from_min, p_to_min, p_reason, p_by, v_now)
  on conflict (name) do update set (queues, tasks, zone, days, from_min, to_min, reason, by) =
    (excluded.queues, excluded.tasks, excluded.zone, excluded.days, excluded.from_min, excluded.to_min, excluded.reason, excluded.by)
  where (g.queues, g.tasks, g.zone, g.days, g.from_min, g.to_min, g.reason) is distinct from
    (excluded.queues, excluded.tasks, excluded.zone, excluded.days, excluded.from_min, excluded.to_min, excluded.reason);
  if found then perform pg_notify('sluice.wake', '*'); end if;
end $$;
