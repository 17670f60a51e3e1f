-- When jobs come next for room in a bucket, or in the pool that it is a member of; null: none wait, or nobody has come
-- for half a second (no free worker, a pause).
create or replace function engine.awaited(p_bucket bigint, p_now bigint) returns bigint language plpgsql stable as $$
begin
  return (
    select min(l.due)
      from sluice.bucket b
        cross join lateral (values (b.id), (sluice.hash64(b.name || '*'))) i (id) cross join sluice.class c
    cross join lateral (select due from sluice.list where class = c.id and id = i.id order by v desc limit 1) l
    where b.id = p_bucket and l.due + 500000 > p_now);
end $$;
