-- Ends jobs that have just come to lanes which wait already, where they would wait in vain (doom). Call under the class's
-- lock. A lane that has nothing left is taken out of its list when that is looked at. Returns whether some were ended: then
-- there is something new to take in, for those who hear of failures.
create or replace function engine.vain(p_lane sluice.lane[]) returns boolean language plpgsql as $$
declare
  v_now bigint := engine.limiter_us();
  v_lists bigint[] := array(select l.list from unnest(p_lane) with ordinality l order by l.ordinality);
  v_gone integer[];
  v_later boolean;
begin
  select d.gone, d.later into v_gone, v_later from engine.doom(v_now, p_lane, v_lists) d;
  if v_later then perform engine.hasten(p_lane, v_lists, v_now); end if;
  if v_gone is null then return false; end if;
  update sluice.lane l set v = l.v + 1, n = l.n - v_gone[k.ordinality]
  from unnest(p_lane) with ordinality k where l.id = k.id and l.v = k.v and v_gone[k.ordinality] > 0;
  return found;
end $$;
