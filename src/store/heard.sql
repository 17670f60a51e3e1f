-- Which classes an arrival of this queue and task, with jobs that need room there, concerns: its own, and class 0 when that
-- one is not known to exist.
create or replace function engine.heard(p_queue text, p_task text, p_takes text[]) returns table (class bigint)
language plpgsql stable as $$
begin
  class := engine.class_id(p_queue, p_task, p_takes);
  return next;
  if exists (select 1 from sluice.class c where c.id = heard.class and c.retired is null) then return; end if;
  class := 0;
  return next;
end $$;
