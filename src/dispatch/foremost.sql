-- The lane in front of a list of a class whose turns begin at p_floor, in the order of pick; null: nobody stands there.
create or replace function engine.foremost(p_class bigint, p_list bigint, p_floor bigint) returns sluice.lane language plpgsql stable as $$
declare
  v_lane sluice.lane;
begin
  -- A turn may stand behind its fair key, which is then later than it seems.
  select f.* into v_lane
  from (select t.fair, t.vstart from sluice.turn t where t.class = p_class and t.list = p_list and t.vstart >= p_floor
        order by t.vstart, t.fair limit 16) t
  cross join lateral (select k.vstart from sluice.fair k where k.class = p_class and k.id = t.fair order by k.v desc limit 1) k
  cross join lateral (select s.lane, s.rank from sluice.seat s where s.class = p_class and s.list = p_list and s.fair = t.fair
                      order by s.rank, s.lane limit 1) s
  cross join lateral (select * from sluice.lane l where l.id = s.lane order by l.v desc limit 1) f
  order by greatest(t.vstart, k.vstart), s.rank, s.lane limit 1;
  return v_lane;
end $$;
