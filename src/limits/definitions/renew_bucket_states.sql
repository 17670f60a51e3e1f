-- Writes the state of buckets that have a new definition since their newest row. engine.bucket_room rebuilds that state
-- from the ledger, which takes a while where the ledger is long: so it is written once, and before the clock is read. A
-- bucket whose ledger is too long for a claim (engine.is_ledger_too_long) is recorded in sluice.renewal: it grants
-- nothing until engine.rebuild_next_bucket has rebuilt it outside of claims. The caller has locked the buckets.
-- p_buckets: their ids.
create or replace function engine.renew_bucket_states(p_buckets bigint[]) returns void language plpgsql as $$
declare
  v_room engine.room;
begin
  foreach v_room in array engine.bucket_room(p_buckets, 0) loop
    continue when v_room.stale is not true;
    if v_room.version = (
      select max(d.version)
        from sluice.bucket b join sluice.limit_def d on d.name = b.name where b.id = v_room.bucket) then
      perform engine.append_ledger(array[v_room]);
    else
      insert into sluice.renewal (bucket) values (v_room.bucket) on conflict do nothing;
    end if;
  end loop;
end $$;
