-- Returns the names of the buckets in which the delivery of an event needs room. Null: a key is missing, or is no text,
-- boolean or whole number, and the service's code has to decide.
-- p_buckets: the names, without keys.
-- p_paths: for each the path of its key in the envelope (`data.account.id`); null: it has no key.
create or replace function engine.delivery_buckets(p_buckets text[], p_paths text[], p_event jsonb) returns text[]
language plpgsql immutable as $$
declare
  v_buckets text[] := '{}';
  v_path text[];
  v_key text;
begin
  for i in 1 .. cardinality(p_buckets) loop
    if p_paths[i] is null then
      v_buckets := v_buckets || p_buckets[i];
      continue;
    end if;
    v_path := string_to_array(p_paths[i], '.');
    v_key := p_event #>> v_path;
    if jsonb_typeof(p_event #> v_path) not in ('string', 'number', 'boolean') or length(v_key) not between 1 and 512
       or v_key ~ E'\x1f' or (jsonb_typeof(p_event #> v_path) = 'number' and v_key !~ '^-?\d{1,15}$') then
      return null;
    end if;
    if v_key is null then return null; end if;
    v_buckets := v_buckets || (p_buckets[i] || ':' || v_key);
  end loop;
  return v_buckets;
end $$;
