-- Rebuilds the state of one bucket whose ledger is too long for a claim to do it (engine.renew_bucket_states), and
-- notifies workers and takers that wait for the bucket. The caller's transaction has no time limit. A bucket that fails
-- by its data is parked, so that others follow. Returns false when no bucket is left, or another process is rebuilding
-- one.
create or replace function engine.rebuild_next_bucket() returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_bucket bigint;
  v_row sluice.ledger;
  v_def sluice.limit_def;
begin
  if not pg_try_advisory_xact_lock(1397511523, -17) then return false; end if;  -- lock: rebuild
  v_bucket := (select r.bucket from sluice.renewal r limit 1);
  if v_bucket is null then return false; end if;
  perform engine.lock_buckets_and_pools(array[v_bucket]);
  delete from sluice.renewal r where r.bucket = v_bucket;
  select l.* into v_row from sluice.ledger l where l.bucket = v_bucket order by l.at desc, l.n desc limit 1;
  select d.* into v_def
    from sluice.bucket b
      join sluice.limit_def d on d.name = b.name and d.key = b.def_key
    where b.id = v_bucket order by d.version desc limit 1;
  if v_row.version < v_def.version then
    begin
      v_row := engine.rebuild_bucket_state(v_row, v_def);
      -- Until this row is written, engine.bucket_room returns the state under the older definition.
      perform engine.append_ledger(array[jsonb_populate_record(
        null::engine.room, to_jsonb(v_row) || jsonb_build_object('ord', 1, 'now_at', v_row.at,
        'kind', v_def.kind, 'weight', v_def.weight, 'part_us', v_def.part_us, 'margin', v_def.margin))]);
    exception when data_exception or integrity_constraint_violation or assert_failure then
      perform engine.park_bucket(row(v_bucket, sqlstate, sqlerrm)::engine.fault);
      return true;
    end;
  end if;
  update sluice.list l set due = engine.limiter_now_us()
  where l.id <> 0 and l.id in (v_bucket, sluice.hash64(v_def.name || '*'));
  perform pg_notify('sluice.wake', '*');
  perform engine.notify_takers(array[v_bucket], engine.limiter_now_us());
  return true;
end $$;
