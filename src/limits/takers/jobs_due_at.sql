-- Returns when jobs next claim from a bucket, or from the pool that it is a member of, in limiter's microseconds. Null:
-- no jobs wait for it, or no claim has come for half a second after they were due (no free worker, a pause).
create or replace function engine.jobs_due_at(p_bucket bigint, p_now bigint)
returns bigint language plpgsql stable as $$
begin
  return (
    select min(l.due)
      from sluice.bucket b
        cross join lateral (values (b.id), (sluice.hash64(b.name || '*'))) i (id) cross join sluice.class c
    cross join lateral (select due from sluice.list where class = c.id and id = i.id order by v desc limit 1) l
    where b.id = p_bucket and l.due + 500000 > p_now);
end $$;
