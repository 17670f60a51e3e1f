-- Returns the buckets of limits by label (`ip@host`) for a worker with these labels, in the same order.
create or replace function engine.label_buckets(p_labels jsonb, p_asked text[]) returns bigint[]
language plpgsql immutable as $$
begin
  return array(select sluice.hash64(split_part(a, '@', 1) || ':' || (p_labels ->> split_part(a, '@', 2)))
               from unnest(p_asked) with ordinality u (a, o) order by o);
end $$;
