-- Units of each of these buckets that are kept for lanes which wait for more than one (sluice.list.holder) and are none of
-- p_lanes, which are about to be served; unless one of those has asked earlier (of two that asked in one claim the class
-- decides: else each would keep it from the other). Nobody keeps what he did not come for within a second. Call under lock.
create or replace function engine.reserved(p_buckets bigint[], p_lanes bigint[], p_now bigint) returns bigint[] language plpgsql stable as $$
begin
  return array(
    select coalesce((
      select sum(w.need) from sluice.list w where w.id = b and w.holder is not null and w.holder <> all (p_lanes) and w.due > p_now - 1000000
        and not exists (select 1 from sluice.list o where o.id = b and o.holder = any (p_lanes) and (o.asked, o.class) < (w.asked, w.class))), 0)::bigint
    from unnest(p_buckets) with ordinality u (b, o) order by o);
end $$;
