-- When jobs look again at a bucket that frees at p_next (null: no bucket): not within 20 ms while takers outside of
-- jobs wait for it, or for a member of the pool that it is, too: something may be left for them that jobs must not ask
-- about over and over.
create or replace function engine.after(p_bucket bigint, p_next bigint, p_now bigint) returns bigint
language plpgsql stable as $$
begin
  if p_next > p_now + 20000 or p_next is null or not exists (select 1 from sluice.taker where alive_until > p_now) then
    return p_next;
  end if;
  return case when exists (
    select 1 from sluice.taker t where t.alive_until > p_now and t.bucket in (
      select p_bucket union all
      select sluice.hash64(b.name || ':' || m) from sluice.bucket b cross join lateral (
        select members from sluice.limit_def where name = b.name order by version desc limit 1) d, unnest(d.members) m
      where b.id = p_bucket and b.key = '*')) then p_now + 20000 else p_next end;
end $$;
