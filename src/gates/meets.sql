-- True when a gate is in force at this time and meant for jobs of this queue and task. Gates of rules are not meant for the
-- jobs that tell of failures, unless a pattern names those.
create or replace function engine.meets(p_gate sluice.gate, p_queue text, p_task text, p_now timestamptz) returns boolean
language sql stable as $$
  select (p_gate.alive_until is null or p_gate.alive_until > p_now)
    and engine.fits(p_gate.queues, p_queue) and engine.fits(p_gate.tasks, p_task)
    and (p_gate.alive_until is null or p_task not like '%:failed' or exists (select 1 from unnest(p_gate.tasks) p
                                                                 where p like '%:failed' and engine.fits(array[p], p_task)))
$$;
