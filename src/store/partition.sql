-- Keeps history partitioned by day of creation: makes the partitions from yesterday to three days ahead, and drops
-- those whose range ended more than p_keep_days ago and whose newest finish is that old too. Returns what it dropped.
-- Gives up a step, until the next run, rather than wait for a lock behind somebody's long query.
create or replace function sluice.partition_v1(p_keep_days integer) returns setof text language plpgsql as $$
declare
  v_today bigint := floor(extract(epoch from sluice.now()) / 86400)::bigint;
  v_table text;
  v_name text;
  v_old record;
  v_newest timestamptz;
begin
  perform set_config('lock_timeout', '2s', true);
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;
  foreach v_table in array array['done', 'failed'] loop
    for v_day in v_today - 1 .. v_today + 3 loop
      v_name := v_table || to_char(to_timestamp(v_day * 86400) at time zone 'UTC', '_YYYYMMDD');
      continue when to_regclass(format('sluice.%I', v_name)) is not null;
      begin
        execute format('create table sluice.%I partition of sluice.%I for values from (%L) to (%L)', v_name, v_table,
                       sluice.id_floor(v_day::bigint * 86400000), sluice.id_floor((v_day + 1)::bigint * 86400000));
      exception when lock_not_available or check_violation then null;
      end;
    end loop;
    for v_old in
      select c.relname::text as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = format('sluice.%I', v_table)::regclass and c.relname ~ '_\d{8}$'
        and extract(epoch from to_date(right(c.relname, 8), 'YYYYMMDD')) / 86400 + 1 <= v_today - p_keep_days
    loop
      begin
        execute format('select max(finished_at) from sluice.%I', v_old.name) into v_newest;
        continue when v_newest > sluice.now() - make_interval(days => p_keep_days);
        execute format('drop table sluice.%I', v_old.name);
        return next v_old.name;
      exception when lock_not_available then null;
      end;
    end loop;
  end loop;
end $$;
