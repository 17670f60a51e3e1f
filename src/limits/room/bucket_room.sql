-- Returns what each bucket allows at p_now, as engine.recorded_room does, but without waiting for a renewal: where a
-- bucket is stale, its state is computed anew (engine.renewed_state), which takes a while. Where the ledger is too long
-- for that (engine.is_ledger_too_long), the room stays as engine.recorded_room returns it.
-- Claims do not call it, because they hold the locks of all their buckets and classes meanwhile.
-- The parameters are those of engine.recorded_room.
create or replace function engine.bucket_room(
  p_buckets bigint[], p_now bigint, p_further boolean default false, p_need bigint[] default null,
  p_exact boolean default false, p_cap bigint default null)
returns engine.room[] language plpgsql stable as $$
declare
  v_rooms constant engine.room[] := engine.recorded_room(p_buckets, p_now, p_further, p_need, p_exact, p_cap);
  v_room engine.room;
  v_stale boolean;
begin
  foreach v_room in array v_rooms loop v_stale := v_stale or v_room.stale; end loop;
  if v_stale is not true then return v_rooms; end if;
  p_now := v_rooms[1].read_at;
  return engine.recorded_room(p_buckets, p_now, p_further, p_need, p_exact, p_cap, array(
    select engine.renewed_state(b.id, l.newest, d.def, greatest(p_now, (l.newest).at) - e.clock_offset_us)
    from (select unnest(p_buckets) as id
          union
          select sluice.hash64(p.name || ':' || m) from sluice.bucket p
          cross join lateral (
            select members from sluice.limit_def where name = p.name order by version desc limit 1) d,
            unnest(d.members) m
          where p.id = any (p_buckets) and p.key = '*') u
    join sluice.bucket b on b.id = u.id and b.parked is null cross join sluice.epoch e
    left join lateral (
      select o as newest from sluice.ledger o where o.bucket = b.id order by o.at desc, o.n desc limit 1) l on true
    left join lateral (
      select d as def from sluice.limit_def d where d.name = b.name and d.key = b.def_key
      order by d.version desc limit 1) d on true));
end $$;
