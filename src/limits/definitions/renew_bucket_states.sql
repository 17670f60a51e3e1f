-- Writes the state of buckets that are stale (engine.recorded_room): outside of claims, because that takes a while. If
-- the calendar that claims use does not reach this time, it is written, too, in the newest definition of each limit.
-- Limits come in the order of their names, because renewals of other buckets may write the same calendars. For a new
-- definition the new row has the time of the newest one, because no units were granted since. Periods that begin again
-- after a step of the store's clock are those of now. If a ledger is too long for one statement
-- (engine.is_ledger_too_long), the bucket is recorded in sluice.renewal: it grants nothing until
-- engine.rebuild_next_bucket has rebuilt it. The caller has locked the buckets.
-- p_buckets: their ids.
create or replace function engine.renew_bucket_states(p_buckets bigint[], p_cap bigint default null) returns void
language plpgsql as $$
declare
  v_room engine.room;
  v_def record;
  v_stale bigint[];
  v_now bigint;
  v_wall bigint;
begin
  foreach v_room in array engine.recorded_room(p_buckets, null, p_cap => p_cap) loop
    if v_room.stale then v_stale := v_stale || v_room.bucket; v_now := v_room.read_at; v_wall := v_room.wall; end if;
  end loop;
  if v_stale is null then return; end if;
  for v_def in
    select distinct on (d.name, d.key) d.name, d.version from sluice.limit_def d
    where d.margin is not null and (d.name, d.key) in (
      select b.name, b.def_key from sluice.bucket b where b.id = any (v_stale))
    order by d.name, d.key, d.version desc
  loop
    update sluice.limit_def d set periods = engine.calendar_periods(d, v_wall)
    where d.name = v_def.name and d.version = v_def.version and exists (
      select 1 from generate_subscripts(d.margin, 1) i where d.kind[i] = 'quota'
        and (v_wall < d.periods[i][7] and v_wall >= coalesce(d.periods[i][2], v_wall)) is not true);
  end loop;
  -- The first pass is at 0, which is before every row: so it writes each bucket at the time of its newest row. That is
  -- enough for a new definition. The second pass is for quotas whose periods have to be counted as of now.
  foreach v_now in array array[0, v_now] loop
    foreach v_room in array engine.bucket_room(array(
      select r.bucket from unnest(engine.recorded_room(v_stale, v_now)) r where r.stale and r.n > 0), v_now)
    loop
      if v_room.stale then insert into sluice.renewal (bucket) values (v_room.bucket) on conflict do nothing;
      else perform engine.append_ledger(array[v_room]); end if;
    end loop;
  end loop;
end $$;
