-- Returns how many units each of these buckets holds at most while the rules of older code hold beside those of newer
-- code; null for buckets whose definition has no such rules, and null altogether when no limit ever had them.
create or replace function engine.read_older_capacities(p_buckets bigint[]) returns bigint[]
language plpgsql stable as $$
begin
  if not exists (select 1 from sluice.limit_def where own is not null) then return null; end if;
  return array(
    select (select min(r.room) from unnest(d.room, d.kind) r (room, kind)
            where r.kind <> 'concurrency' and d.own is not null)
    from unnest(p_buckets) with ordinality u (b, o)
    left join sluice.bucket k on k.id = u.b
    left join lateral (
      select l.* from sluice.limit_def l where l.name = k.name order by l.version desc limit 1) d on true
    order by u.o);
end $$;
