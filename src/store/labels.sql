-- Those of a job's limits that go by labels of the worker, as takes has them (`ip@host`), in order; null: none.
create or replace function engine.labels(p_takes text[]) returns text[] language plpgsql immutable as $$
begin
  -- Apart, because an expression that has a query starts it up.
  if p_takes is null or strpos(array_to_string(p_takes, ''), '@') = 0 then return null; end if;
  return (select array_agg(t order by t) from unnest(p_takes) t where t ~ '^[^:*]+@');
end $$;
