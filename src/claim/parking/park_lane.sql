-- Parks a lane, and returns its name; null when the lane has no row yet. A parked lane stands in list 1, which no claim
-- reads, and its turn does not count. The lanes of its fair key that stood behind it take its place. Call under its
-- class's lock.
-- p_fault: the lane, and the error that its data caused
create or replace function engine.park_lane(p_fault engine.fault) returns text language plpgsql as $$
declare
  v_was sluice.lane;
  v_name text;
  v_at timestamptz := sluice.now();
  v_front bigint;
begin
  select * into v_was from sluice.lane l where l.id = p_fault.id order by l.v desc limit 1;
  if v_was.list is null then return null; end if;
  -- The version is set to 0, because a bad version may be what made it fail.
  update sluice.lane l set v = 0, list = 1, vstart = 0, denied = 0 where l.id = v_was.id and l.v = v_was.v;
  delete from sluice.reservation r where r.class = v_was.class and r.lane = v_was.id;
  perform engine.choose_front_lanes(v_was.class, v_was.list, array[v_was.fair]);
  v_front := (select min(l.vstart) from sluice.lane l
    where l.class = v_was.class and l.list = v_was.list and l.vstart is not null);
  -- Claims must not look at an empty list again and again, and its floor must not be the turn of this lane.
  update sluice.list k set v = k.v + 1, due = case when v_front is not null then k.due end,
    floor = coalesce(v_front, case when k.floor < v_was.vstart then k.floor else 0 end)
  where k.class = v_was.class and k.id = v_was.list;
  -- A turn that is absurdly large may have moved the floors of other lists.
  update sluice.list k set v = k.v + 1, floor = coalesce((
    select min(l.vstart) from sluice.lane l where l.class = k.class and l.list = k.id and l.vstart is not null), 0)
  where k.class = v_was.class and k.floor > 4611686018427387904;
  v_name := (select format('%s in %s, lane %s', c.task, c.queue, v_was.id) from sluice.class c
    where c.id = v_was.class);
  insert into sluice.parked (kind, id, name, error, code, at)
    values ('lane', v_was.id, v_name, p_fault.error, p_fault.code, v_at)
  on conflict (kind, name) do update set error = excluded.error, code = excluded.code, at = excluded.at;
  return v_name;
end $$;
