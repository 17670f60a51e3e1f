-- Creates the daily partitions of history, by the day of a job's creation, from yesterday to three days ahead. It skips
-- a partition whose lock is not free within 200 ms until the next run, so that finishes do not queue behind a lock that
-- waits for a long query.
create or replace function engine.create_partitions() returns void language plpgsql set lock_timeout = '200ms' as $$
declare
  v_today bigint := floor(extract(epoch from sluice.now()) / 86400)::bigint;
  v_table text;
  v_name text;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;  -- lock: old rows
  foreach v_table in array array['done', 'failed'] loop
    for v_day in v_today - 1 .. v_today + 3 loop
      v_name := v_table || to_char(to_timestamp(v_day * 86400) at time zone 'UTC', '_YYYYMMDD');
      continue when to_regclass(format('sluice.%I', v_name)) is not null;
      begin
        execute format('create table sluice.%I partition of sluice.%I for values from (%L) to (%L)', v_name, v_table,
                       engine.id_floor(v_day::bigint * 86400000), engine.id_floor((v_day + 1)::bigint * 86400000));
      exception when lock_not_available or check_violation then null;
      end;
    end loop;
  end loop;
end $$;
