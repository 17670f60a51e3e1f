-- Checks that the store has lost nothing, and that its clock is not behind a time that the limiter's clock has shown.
-- If the store lacks something that it had, this begins the next epoch: limits close (limits/room/bucket_room.sql), and
-- workers get ids that no worker has had. If the store's clock was set back, this moves the limiter's clock forward, to
-- the latest time that it is known to have shown: that of the newest grant, or p_least if that is later.
-- What the caller knows; null: nothing.
-- p_least: the limiter's clock shows this time or a later one.
-- p_n, p_lsn: in epoch p_n the log was on disk up to p_lsn.
-- The result, after the correction:
-- now_us, clock_offset_us, watched: the limiter's clock, its offset from the store's, whether steps are watched.
-- n, lsn: the epoch; the position up to which the log is on disk.
-- renewal: buckets wait for their new definition (engine.rebuild_next_bucket).
-- restored: this call has begun an epoch.
-- raised_us: by how much the clock had been set back, if this call corrected it; else 0.
create or replace function engine.check_epoch(p_least bigint, p_n bigint, p_lsn pg_lsn,
  out now_us bigint, out clock_offset_us bigint, out watched boolean, out n bigint, out lsn pg_lsn,
  out restored boolean, out raised_us bigint,
  out renewal boolean)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_slack constant bigint := 2000000;
  v_epoch sluice.epoch;
  v_id text;
  v_server timestamptz := pg_postmaster_start_time();
  v_least bigint;
begin
  renewal := exists (select 1 from sluice.renewal);
  -- Its system identifier and timeline change when a standby is promoted or a backup restored, and a table's id when a
  -- dump is restored, also on the same server; the position up to which its log is on disk never goes back on a server
  -- that kept what it acknowledged. Some servers do not give these.
  begin
    lsn := pg_current_wal_flush_lsn();
    select c.system_identifier || '/' || left(pg_walfile_name(lsn), 8) || '/' || e.tableoid into v_id
    from pg_control_system() c, sluice.epoch e;
  exception when others then
    lsn := null;
  end;
  v_id := coalesce(v_id, (select identity from sluice.epoch));
  for round in 1 .. 2 loop
    select * into v_epoch from sluice.epoch;
    now_us := sluice.now_us() + v_epoch.clock_offset_us;
    -- The newest grant may be one ahead of time (engine.grant_ahead), for an instant that the clock has not shown yet.
    v_least := greatest(p_least, v_epoch.seen_us,
      (select l.at - engine.most_ahead_us() from sluice.ledger l order by l.at desc limit 1));
    -- One microsecond later than the newest grant.
    raised_us := case when v_epoch.watched and v_least > now_us + v_slack then v_least - now_us + 1 else 0 end;
    restored := v_epoch.identity <> v_id or p_n > v_epoch.n or (p_n = v_epoch.n and p_lsn > lsn);
    restored := coalesce(restored, false);
    exit when round = 2
      or (raised_us = 0 and not restored
        and (v_epoch.identity, v_epoch.server_at) is not distinct from (v_id, v_server));
    -- When several callers see the same, the first one acts; the others check again.
    perform pg_advisory_xact_lock(1397511523, -12);  -- lock: clock
  end loop;
  now_us := now_us + raised_us;
  n := case when restored then greatest(v_epoch.n, p_n) + 1 else v_epoch.n end;
  clock_offset_us := v_epoch.clock_offset_us + raised_us;
  watched := v_epoch.watched;
  if (n, clock_offset_us, v_id, v_server)
    is not distinct from (v_epoch.n, v_epoch.clock_offset_us, v_epoch.identity, v_epoch.server_at) then return; end if;
  update sluice.epoch e set n = check_epoch.n, identity = v_id, server_at = v_server,
    clock_offset_us = check_epoch.clock_offset_us,
    closed_us = case when restored then check_epoch.now_us else e.closed_us end,
    seen_us = case when raised_us > 0 then check_epoch.now_us else e.seen_us end,
    stepped_us = case when raised_us > 0 then -raised_us else e.stepped_us end,
    stepped_at = case when raised_us > 0 then to_timestamp((check_epoch.now_us - check_epoch.clock_offset_us) / 1e6)
      else e.stepped_at end;
  if raised_us > 0 then
    insert into sluice.step (at, before_us, clock_offset_us)
    values (now_us, v_epoch.clock_offset_us, check_epoch.clock_offset_us);
  end if;
  if restored then
    -- Otherwise two workers could have one id: one that registered before the loss, and one after it.
    perform setval(s, nextval(s) + 1000000) from pg_get_serial_sequence('sluice.worker', 'id') s;
    perform pg_notify('sluice.wake', '*');
  end if;
end $$;
