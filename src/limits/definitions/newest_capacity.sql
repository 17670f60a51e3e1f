-- Returns how many units the newest code of a limit allows at once. The definition in force may allow fewer, while
-- older code still runs. Null: the limit does not count units. For a label it is the most that any of its values
-- allows, because other workers may have that one.
-- p_bucket: the name of one of its buckets.
create or replace function engine.newest_capacity(p_bucket text) returns bigint language plpgsql stable as $$
begin
  return (
    select max(n.capacity) from (
      select distinct on (d.key) (
               select min(r.capacity) from unnest(d.capacity, d.kind) with ordinality r (capacity, kind, o)
               where r.kind <> 'concurrency' and r.o <= coalesce(d.own, r.o)) as capacity
      from sluice.limit_def d
      where d.name = substring(p_bucket from '^[^:*@]+') and (p_bucket ~ '^[^:*]+@' or d.key = coalesce((
        select b.def_key from sluice.bucket b where b.id = sluice.hash64(p_bucket)), ''))
      order by d.key, d.version desc) n);
end $$;
