-- Ends the holds of a limit's buckets that other programs had used up in Redis (`used` in engine.hold_buckets): under a
-- changed definition they may have room there. A vendor's hold stays. The caller has locked the buckets.
create or replace function engine.end_used_holds(p_name text) returns void language plpgsql as $$
declare
  v_now constant bigint := engine.limiter_now_us();
  v_used sluice.ledger;
  v_room engine.room;
begin
  for v_used in
    select distinct on (l.bucket) l.* from sluice.ledger l join sluice.bucket b on b.id = l.bucket
    -- Such a hold lasts five seconds at most.
    where l.at > v_now - 5000000 and l.hold > v_now and l.cause = 'used' and b.name = p_name
    order by l.bucket, l.at desc, l.n desc
  loop
    v_room := (engine.bucket_room(array[v_used.bucket], v_now))[1];
    continue when v_room.hold <> v_used.hold;
    v_room.hold := coalesce((
      select l.hold from sluice.ledger l where l.bucket = v_used.bucket and (l.at, l.n) < (v_used.at, v_used.n)
      order by l.at desc, l.n desc limit 1), 0);
    perform engine.append_ledger(array[v_room]);
  end loop;
end $$;
