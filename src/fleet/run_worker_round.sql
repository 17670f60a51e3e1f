-- Does what a worker needs every 2 s, in one statement: counts up its beat, looks at the store (`engine.check_epoch`
-- describes the columns from now_us on), and reads the claims that the store holds for it.
-- p_led: this worker led the fleet, that is, did its common work, in its last round. It usually does so again, because
-- its connection has planned all statements.
-- p_round: the now_us of the worker's last round; null: it had none
-- p_least, p_n, p_lsn: as in `engine.check_epoch`
-- alive: false when the worker was given up; it must register again
-- leads: no worker has watched the fleet for a while (`engine.watch_workers` records when), so this one leads it
-- rest: another worker watches, and the fleet has at least five workers, so one of them would soon notice if it stopped
-- orphans: claims of this worker that are older than 5 s. If the worker does not know one of them, a request reached
-- the store late, or its answer was lost; the worker adopts its jobs (`engine.adopt_claim`). Those that were older than
-- 20 s at the last round are read at each 30th beat only, once in one or two minutes: while an old snapshot is open,
-- the rows of all ended claims are still there.
-- stints: its stints. Another dispatcher may have ended them while this one was silent.
create or replace function engine.run_worker_round(
  p_worker bigint, p_led boolean, p_round bigint, p_least bigint, p_n bigint, p_lsn pg_lsn,
  out alive boolean, out leads boolean, out rest boolean, out orphans uuid[], out stints text[],
  out now_us bigint, out clock_offset_us bigint, out watched boolean, out n bigint, out lsn pg_lsn,
  out restored boolean, out raised_us bigint, out renewal boolean)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now bigint := sluice.now_us();
  v_beat bigint;
begin
  select l.* into now_us, clock_offset_us, watched, n, lsn, restored, raised_us, renewal
  from engine.check_epoch(p_least, p_n, p_lsn) l;
  update sluice.worker w set beat = w.beat + 1 where w.id = p_worker
  returning w.beat, w.stints into v_beat, stints;
  alive := found;
  -- A little more than a beat; for the worker that leads, a little less.
  leads := not exists (select 1 from sluice.doubt d where d.worker = p_worker
                      and d.at between v_now - case when p_led then 1500000 else 2200000 end and v_now);
  rest := not leads and (select count(*) from (select 1 from sluice.worker limit 5) w) = 5;
  orphans := array(
    select c.id from sluice.claim c where c.worker = p_worker and c.at < now_us - 5000000
      and c.at > case when v_beat % 30 = 0 or p_round is null then 0 else least(now_us, p_round) - 20000000 end);
end $$;
