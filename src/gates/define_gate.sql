-- Creates a gate or changes it; an equal gate is left as it is. It wakes the workers when the gate is new, or was
-- changed and has no end, because jobs that it held back may start now. Claims under way still hand out jobs that may
-- begin now; grants ahead of time are called back.
-- p_lasts: seconds until the gate ends; once half of them are over, the same call renews it. Null: it has no end.
-- Other parameters: the columns of sluice.gate.
create or replace function engine.define_gate(
  p_name text, p_queues text[], p_tasks text[], p_zone text, p_days smallint[], p_from_min integer, p_to_min integer,
  p_reason text, p_by text, p_lasts integer) returns void language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_new boolean;
begin
  perform v_now at time zone p_zone;  -- raises an error when the zone is unknown
  insert into sluice.gate as g (name, queues, tasks, zone, days, from_min, to_min, reason, by, created_at, alive_until)
  values (p_name, p_queues, p_tasks, p_zone, p_days, p_from_min, p_to_min, p_reason, p_by, v_now,
    v_now + make_interval(secs => p_lasts))
  on conflict (name) do update set (queues, tasks, zone, days, from_min, to_min, reason, by, alive_until) =
    (excluded.queues, excluded.tasks, excluded.zone, excluded.days, excluded.from_min, excluded.to_min,
     excluded.reason, excluded.by, excluded.alive_until)
  where (g.queues, g.tasks, g.zone, g.days, g.from_min, g.to_min, g.reason, g.alive_until is null)
    is distinct from (excluded.queues, excluded.tasks, excluded.zone, excluded.days, excluded.from_min,
      excluded.to_min, excluded.reason, p_lasts is null)
    or g.alive_until < v_now + make_interval(secs => p_lasts) / 2
  returning created_at = v_now or alive_until is null into v_new;
  if v_new then
    perform pg_notify('sluice.wake', '*');
    perform engine.call_back_grants_ahead(null);
  end if;
  if v_new and p_lasts is null and p_days is null then
    perform engine.notify_event('paused', jsonb_build_object('name', p_name, 'isPaused', true,
      'reason', p_reason, 'by', p_by));
  end if;
end $$;
