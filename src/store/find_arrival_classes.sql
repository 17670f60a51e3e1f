-- Returns the classes for which an arrival of this queue and task is announced: the job's own class, and class 0 when
-- that class is not known to exist.
-- p_buckets: the names of the buckets in which the job needs room.
create or replace function engine.find_arrival_classes(p_queue text, p_task text, p_buckets text[])
returns table (class bigint)
language plpgsql stable as $$
begin
  class := engine.class_id(p_queue, p_task, p_buckets);
  return next;
  if exists (select 1 from sluice.class c where c.id = find_arrival_classes.class
             and c.retired is null) then return; end if;
  class := 0;
  return next;
end $$;
