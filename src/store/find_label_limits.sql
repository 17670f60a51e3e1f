-- Returns those of a job's limits that go by labels of the worker (`ip@host`), in order; null: none.
create or replace function engine.find_label_limits(p_buckets text[]) returns text[] language plpgsql immutable as $$
begin
  -- A statement of its own, because an expression with a query in it pays for that query even where it is not needed.
  if p_buckets is null or strpos(array_to_string(p_buckets, ''), '@') = 0 then return null; end if;
  return (select array_agg(t order by t) from unnest(p_buckets) t where t ~ '^[^:*]+@');
end $$;
