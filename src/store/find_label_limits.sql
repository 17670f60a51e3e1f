-- Returns those of a job's limits that go by labels of the worker (`ip@host`, as in p_takes), in order; null: none.
create or replace function engine.find_label_limits(p_takes text[]) returns text[] language plpgsql immutable as $$
begin
  -- A statement of its own, because an expression with a query in it pays for that query even where it is not needed.
  if p_takes is null or strpos(array_to_string(p_takes, ''), '@') = 0 then return null; end if;
  return (select array_agg(t order by t) from unnest(p_takes) t where t ~ '^[^:*]+@');
end $$;
