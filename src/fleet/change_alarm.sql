-- Raises or ends an alarm. Does nothing if it is raised, or has ended, already, or if it has changed within the last
-- minute. Returns whether it changed the alarm: if several workers try, it returns true to one of them.
-- p_subject: what the alarm is about; '': the store
create or replace function engine.change_alarm(p_alarm text, p_subject text, p_raised boolean) returns boolean
language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  delete from sluice.alarm a where not a.raised and a.changed_at < v_now - interval '1 day';
  insert into sluice.alarm as a (name, subject, raised, changed_at) values (p_alarm, p_subject, p_raised, v_now)
  on conflict (name, subject) do update set raised = excluded.raised, changed_at = excluded.changed_at
  where a.raised <> excluded.raised
    and (a.changed_at <= v_now - interval '1 minute' or a.changed_at > v_now);
  return found;
end $$;
