-- Returns how long, in microseconds, a grant may be used at most that one of the newest three definitions of its limits
-- gave: for grants that are handed out again, by whichever it was. Null: the limits count only places.
-- p_buckets: the names of its buckets.
create or replace function engine.least_life(p_buckets text[]) returns bigint language plpgsql stable as $$
begin
  return (
    select min(k.grant_us) from unnest(p_buckets) b cross join lateral (
      select d.grant_us from sluice.limit_def d
      where d.name = substring(b from '^[^:@*]*') and 'concurrency' <> any (d.kind)
      order by d.version desc limit 3) k);
end $$;
