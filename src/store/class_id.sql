-- Returns the id of a job's class: a hash of its queue, its task, and those of its limits that go by labels of workers.
create or replace function engine.class_id(p_queue text, p_task text, p_buckets text[]) returns bigint
language plpgsql immutable as $$
begin
  return sluice.hash64(concat_ws(E'\x1f', p_queue, p_task,
    array_to_string(engine.find_label_limits(p_buckets), E'\x1f')));
end $$;
