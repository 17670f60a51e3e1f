-- Returns how many units of each of these buckets are reserved for lanes other than p_lanes. A reservation that is
-- later than one of p_lanes in the same bucket does not count. Call under the buckets' locks.
-- p_lanes: the lanes that are about to be served
create or replace function engine.count_reserved_units(p_buckets bigint[], p_lanes bigint[], p_now bigint)
returns bigint[]
language plpgsql stable as $$
begin
  return array(
    select coalesce((
      select sum(r.need) from sluice.reservation r
      where r.bucket = b and r.lane <> all (p_lanes) and r.until > p_now and not exists (
        select 1 from sluice.reservation o
        where o.bucket = b and o.lane = any (p_lanes) and (o.asked, o.lane) < (r.asked, r.lane))), 0)::bigint
    from unnest(p_buckets) with ordinality u (b, o) order by o);
end $$;
