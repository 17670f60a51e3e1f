-- Returns those of these lanes that units of these buckets are reserved for, by position, the oldest reservation first;
-- null: no units are reserved there.
create or replace function engine.find_reserving_lanes(p_lanes sluice.lane[], p_buckets bigint[]) returns integer[]
language plpgsql stable as $$
begin
  if not exists (select 1 from sluice.reservation r where r.bucket = any (p_buckets)) then return null; end if;
  return array(
    select l.ordinality from unnest(p_lanes) with ordinality l
    join sluice.reservation r on r.class = l.class and r.lane = l.id group by 1 order by min(r.asked), 1);
end $$;
