-- True when a gate is in force at p_now and applies to jobs of this queue and task. A gate of a rule (alive_until is
-- set) does not apply to tasks named `…:failed`, which handle failures of other tasks, unless one of its patterns names
-- such tasks.
create or replace function engine.gate_applies_to(
  p_gate sluice.gate, p_queue text, p_task text, p_now timestamptz) returns boolean
language plpgsql stable as $$
begin
  if p_gate.alive_until <= p_now or not engine.matches_patterns(p_gate.queues, p_queue) then return false; end if;
  if p_gate.alive_until is null or p_task not like '%:failed' then
    return engine.matches_patterns(p_gate.tasks, p_task); end if;
  return engine.matches_patterns(array(select t from unnest(p_gate.tasks) t where t like '%:failed'), p_task);
end $$;
