-- Holds buckets: they grant nothing for p_us microseconds from now. Only ever lengthens a hold. The hold counts from
-- the bucket's own time: after a backward step of the clock it must not end before it began.
-- p_buckets: their ids.
-- p_cause: null: the vendor refused a request (engine.refuse_buckets), or demanded the pause; `used`, `closed`: other
-- programs have used the limit up in Redis, or it is closed there; `spent`: the vendor has nothing left
-- (engine.charge_others). `sluice why` reads it.
-- p_trial_us: from now on as in engine.bucket_room; null: as before.
create or replace function engine.hold_buckets(p_buckets bigint[], p_us bigint, p_cap bigint,
  p_cause text default null, p_trial_us bigint default null) returns void
language plpgsql as $$
declare
  v_now constant bigint := engine.limiter_now_us(p_cap);
  v_room engine.room;
  v_rooms engine.room[] := '{}';
begin
  perform engine.lock_buckets(p_buckets);
  foreach v_room in array engine.bucket_room(p_buckets, null, p_cap => p_cap) loop
    continue when v_room.hold >= v_room.now_at + p_us and (p_trial_us is null or p_trial_us = v_room.trial_us);
    v_room.hold := greatest(v_room.hold, v_room.now_at + p_us);
    v_room.trial_us := coalesce(p_trial_us, v_room.trial_us);
    v_rooms := v_rooms || v_room;
  end loop;
  if p_cause is distinct from 'used' then  -- what Redis has granted already may be used
    perform engine.call_back_grants_ahead(array(
      select r.bucket::text from unnest(v_rooms) r
      where exists (select 1 from sluice.ledger l where l.bucket = r.bucket and l.at > v_now)));
  end if;
  perform engine.append_ledger(v_rooms, p_cause => p_cause);
  -- The ledger row that a parked bucket gets at its release takes the hold from here.
  update sluice.parked set hold = greatest(hold, engine.limiter_now_us(p_cap) + p_us)
  where kind = 'bucket' and id = any (p_buckets);
end $$;
