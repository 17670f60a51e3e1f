-- Writes the state of buckets that have a new definition since their newest row. engine.bucket_room rebuilds that state
-- from the ledger, which takes a while where the ledger is long: so it is written once, and not within a claim. If the
-- ledger is too long for one statement (engine.is_ledger_too_long), the bucket is recorded in sluice.renewal: it grants
-- nothing until engine.rebuild_next_bucket has rebuilt it. The caller has locked the buckets.
-- p_buckets: their ids.
create or replace function engine.renew_bucket_states(p_buckets bigint[]) returns void language plpgsql as $$
declare
  v_room engine.room;
  v_stale bigint[];
begin
  foreach v_room in array engine.recorded_room(p_buckets, 0) loop
    if v_room.stale then v_stale := v_stale || v_room.bucket; end if;
  end loop;
  if v_stale is null then return; end if;
  foreach v_room in array engine.bucket_room(v_stale, 0) loop
    if v_room.stale then insert into sluice.renewal (bucket) values (v_room.bucket) on conflict do nothing;
    else perform engine.append_ledger(array[v_room]); end if;
  end loop;
end $$;
