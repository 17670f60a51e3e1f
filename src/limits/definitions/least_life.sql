-- Returns how long, in microseconds, a grant may be used at most that one of the newest three definitions of its limits
-- gave: for grants that are handed out again, by whichever it was. Null: the limits count only places.
-- p_buckets: its buckets.
create or replace function engine.least_life(p_buckets bigint[]) returns bigint language plpgsql stable as $$
begin
  return (
    select min(k.grant_us) from sluice.bucket b cross join lateral (
      select d.grant_us from sluice.limit_def d where d.name = b.name and 'concurrency' <> any (d.kind)
      order by d.version desc limit 3) k
    where b.id = any (p_buckets));
end $$;
