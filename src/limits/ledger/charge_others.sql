-- Charges buckets for what others have used of the same account, as vendors' counts show it (engine.find_others_use).
-- The ledger row has no claim and the cause `others`: the units cannot be given back, and are none that the limit has
-- granted. A bucket of which the vendor has nothing left is held until the vendor's count begins anew, if that time is
-- known. Neither can make a limit grant more. If it is known when the vendor's count begins anew, the units leave our
-- window at that time, or up to a part later.
-- A bucket with nothing to charge is neither locked nor written.
-- p_buckets: their ids, each once; the other arrays have an element for each.
-- p_most, p_left: as in engine.find_others_use.
-- p_since_us: what was granted so many microseconds ago, or earlier, is not in the vendor's count.
-- p_reset_us: time until the vendor's count begins anew; null: not known.
-- Returns what was charged, and for how long buckets are held; none for a bucket that did not change.
create or replace function engine.charge_others(
  p_buckets bigint[], p_most bigint[], p_left bigint[], p_since_us bigint[], p_reset_us bigint[], p_cap bigint)
returns table (bucket bigint, units bigint, held_us bigint)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_first constant bigint := engine.limiter_now_us(p_cap);
  v_due integer[];
  i integer;
  v_room engine.room;
  v_when bigint;
begin
  v_due := array(
    select k from generate_subscripts(p_buckets, 1) k
    where p_left[k] = 0 and p_reset_us[k] is not null or 0 < engine.find_others_use(
      p_buckets[k], p_most[k], p_left[k], v_first - p_since_us[k], v_first + p_reset_us[k], v_first));
  if v_due = '{}' then return; end if;
  perform engine.lock_buckets(array(select p_buckets[d] from unnest(v_due) d));
  foreach i in array v_due loop
    v_room := (engine.bucket_room(p_buckets[i:i], null, p_cap => p_cap))[1];
    continue when v_room.version is null;
    bucket := p_buckets[i];
    held_us := 0;
    units := engine.find_others_use(bucket, p_most[i], p_left[i], v_first - p_since_us[i], v_first + p_reset_us[i],
      v_room.now_at);
    if units > 0 then
      v_when := case when v_room.quota is null
        then v_first + p_reset_us[i] - 60 * coalesce(
          (select max(s) from unnest(v_room.part_us, v_room.kind) u (s, k) where k = 'window'), 0) end;
      perform engine.append_ledger(array[v_room], null, array[units], null,
        least(v_room.now_at, v_when), null, 'others');
    end if;
    -- A second more is within what such times are rounded by.
    if p_left[i] = 0 and v_room.hold < v_first + p_reset_us[i] - 1000000 then
      held_us := p_reset_us[i];
      perform engine.hold_buckets(array[bucket], held_us, p_cap, 'spent');
    end if;
    if units > 0 or held_us > 0 then return next; end if;
  end loop;
end $$;
