-- Returns the shortest life of a grant, in microseconds, under the newest three definitions of each bucket. It is for
-- grants that are handed out again, because any of these definitions may have given them. Null: the limits count only
-- places.
-- p_buckets: its buckets.
create or replace function engine.least_life(p_buckets bigint[]) returns bigint language plpgsql stable as $$
begin
  return (
    select min(k.grant_us) from sluice.bucket b cross join lateral (
      -- Its last grants may be older than its own definitions.
      select '' as key union select b.def_key) o cross join lateral (
      select d.grant_us from sluice.limit_def d
      where d.name = b.name and d.key = o.key and 'concurrency' <> any (d.kind)
      order by d.version desc limit 3) k
    where b.id = any (p_buckets));
end $$;
