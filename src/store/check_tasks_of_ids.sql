-- Fails if a job with one of these ids is of another task: its sender would take that job for the one that it sends.
-- p_ids: ids that are not new.
-- p_tasks: for each the name of the sender's task, and then the task's former names, separated by U+001F.
create or replace function engine.check_tasks_of_ids(p_ids uuid[], p_tasks text[]) returns void
language plpgsql stable as $$
declare
  v_other record;
begin
  select i.id, x.task, split_part(i.names, E'\x1f', 1) as wanted into v_other
  from unnest(p_ids, p_tasks) i (id, names)
  cross join lateral (
    select j.task from sluice.job j where j.id = i.id
    union all select d.task from sluice.done d where d.id = i.id
    union all select f.task from sluice.failed f where f.id = i.id) x
  where x.task <> all (string_to_array(i.names, E'\x1f')) limit 1;
  if v_other.id is null then return; end if;
  perform engine.raise_error('SLUICE_OTHER_TASK', format('id %s is of a job of task "%s", not of "%s": give another id',
    v_other.id, v_other.task, v_other.wanted));
end $$;
