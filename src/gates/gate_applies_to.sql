-- True when a gate is in force at p_now and applies to jobs of this queue and task. A gate of a rule (alive_until is
-- set) does not apply to tasks named `…:failed`, which handle failures of other tasks, unless one of its patterns names
-- such tasks.
create or replace function engine.gate_applies_to(
  p_gate sluice.gate, p_queue text, p_task text, p_now timestamptz) returns boolean
language sql stable as $$
  select (p_gate.alive_until is null or p_gate.alive_until > p_now)
    and engine.matches_patterns(p_gate.queues, p_queue) and engine.matches_patterns(p_gate.tasks, p_task)
    and (p_gate.alive_until is null or p_task not like '%:failed'
         or exists (select 1 from unnest(p_gate.tasks) p
                    where p like '%:failed' and engine.matches_patterns(array[p], p_task)))
$$;
