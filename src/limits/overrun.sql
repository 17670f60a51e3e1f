-- Charges units that a grant has used beyond what it was granted: a debt, which may exceed what the bucket holds. As
-- settle in limits/decide.ts: a window counts them in the part of the grant (p_claim; of one that nobody knows: now), or, when that is over, in its oldest; a quota
-- in the periods of the grant.
-- The row that is appended has no claim: nobody gives it back. Call under lock.
create or replace function engine.overrun(p_bucket bigint, p_claim uuid, p_units bigint, p_now bigint) returns void language plpgsql as $$
declare
  v_room record;
  v_at bigint;
  v_part integer;
begin
  select r.* into v_room from engine.room(array[p_bucket], p_now) r;
  if v_room.version is null or p_units < 1 then return; end if;
  v_at := coalesce((select g.at from (select * from sluice.ledger l where l.bucket = p_bucket order by l.at desc, l.n desc limit 1000) g
                    where g.claim = p_claim and g.units > 0 limit 1),
                   (select c.at from sluice.claim c where c.id = p_claim), v_room.now_at);
  for i in 1 .. cardinality(v_room.slot) loop
    continue when v_room.slot[i] = 0;
    v_part := least(60, greatest(0, v_room.now_at / v_room.slot[i] - v_at / v_room.slot[i])) + 1;
    v_room.slots[i][v_part] := least(v_room.slots[i][v_part] + p_units, 2147483647);
  end loop;
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold)
  values (p_bucket, v_room.n + 1, v_room.now_at,
          array(select case when d = 0 then o else least(o + p_units::numeric * w, 2305843009213693952) end
                from unnest(v_room.debt, v_room.drain, v_room.weight) with ordinality u (o, d, w, i) order by i),
          v_room.slots, engine.spend(v_room.quota, v_room.margin, v_at - engine.advance(v_at), p_units), v_room.version, p_units, v_room.hold);
end $$;
