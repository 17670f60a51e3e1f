-- One take outside of jobs: grants p_cost units of a bucket (p_take: its name) now, or says when to ask again. One
-- autocommitted statement; charges nothing when it denies; idempotent by p_grant, whose id is of version 4 (turn.sql).
-- Nobody overtakes who asked before and still waits, unless there is room for them too; with jobs that wait for the
-- bucket takers take turns (jobs_first). p_line: this waiting taker (null: it does not wait); p_wait: how long it
-- would.
-- p_unused: a grant that was not used; it is given back first, and p_n its place in the line. p_holder: the process,
-- which holds a place where the limit counts those, and is trusted for p_life (lease). p_cap: as for a claim.
-- wait_us: when to ask again; soonest_us: no room before (2^53 - 1: not by time); capacity: more than that is never
-- granted (null: no bound); waited_us: as of a claim; life_us: so long its place lasts (null: it holds none); lost: the
-- process was given up, and has to ask under another id; n: its place in the line until it was granted; fresh_us: so
-- long a request may begin under it (null: the limit counts places only); shared: as of a claim.
create or replace function engine.acquire(
  p_grant uuid, p_line uuid, p_n bigint, p_take text, p_cost bigint, p_wait bigint, p_unused uuid, p_holder uuid,
  p_life bigint, p_cap bigint,
  out granted boolean, out wait_us bigint, out soonest_us bigint, out capacity bigint, out now_us bigint,
  out waited_us bigint,
  out life_us bigint, out lost boolean, out n bigint, out fresh_us bigint, out shared text)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
set lock_timeout = '1s' as $$
declare
  v_bucket bigint := sluice.hash64(p_take);
  v_begun bigint;
  v_room engine.room;
  v_places boolean;
  v_cost bigint := p_cost;
  v_need bigint;
  v_takers bigint;
begin
  lost := false;
  perform engine.same();
  shared := engine.shared();
  v_begun := engine.limiter_us(p_cap);
  perform engine.visit(p_take);
  now_us := engine.limiter_us(p_cap);
  waited_us := greatest(now_us - v_begun, 0);
  if p_unused is not null then perform engine.untake(p_unused, v_bucket, true, now_us); end if;
  select * into v_room from engine.room(array[v_bucket], now_us);
  if v_room.version is null then perform engine.refuse_parked(array[v_bucket]); end if;
  v_places := coalesce('concurrency' = any (v_room.kind), false);
  -- What is only counted by places costs one, whatever it costs elsewhere.
  if v_places and 'concurrency' = all (v_room.kind) then v_cost := 1; end if;
  granted := exists (
    select 1 from (select l.claim, l.units from sluice.ledger l where l.bucket = v_bucket and l.at > now_us - 60000000
                   order by l.at desc, l.n desc limit 1000) t where t.claim = p_grant and t.units >= 0);
  if granted and v_places then
    select h.alive_until - now_us into life_us from sluice.lease l join sluice.holder h on h.id = l.holder
    where l.id = p_grant and h.alive_until > now_us;
    lost := life_us is null;
    granted := not lost;
  elsif not granted then
    -- And what those want who wait before it: p_n is its place, should it not stand there just now.
    select v_cost + coalesce(sum(t.cost), 0), 1 + count(*) into v_need, v_takers from sluice.taker t
    where t.bucket = v_bucket and t.alive_until > now_us
      and (t.n < coalesce((select o.n from sluice.taker o where o.id = p_line), p_n)) is not false;
    if v_room.places < v_takers and engine.vacate(v_bucket, now_us) > 0 then
      select * into v_room from engine.room(array[v_bucket], now_us);
    end if;
    granted := v_room.units >= v_need and v_room.places >= v_takers and v_room.hold <= now_us
      and v_room.next < 9007199254740991 and v_room.version is not null;
    soonest_us := 0;
    if not granted then
      soonest_us := (engine.room(array[v_bucket], now_us, false, array[v_need], true)).next;
      if soonest_us < 9007199254740991 then soonest_us := greatest(soonest_us - now_us, 1); end if;
    end if;
    if granted and engine.jobs_first(v_bucket, now_us) then granted := false; end if;
    if granted and v_places then
      life_us := engine.lease(p_grant, v_bucket, p_holder, p_life, now_us);
      lost := life_us is null;
      granted := not lost;
    end if;
    if granted then perform engine.append_ledger(array[v_room], p_grant, array[v_cost], array[1]); end if;
  end if;
  if granted then
    delete from sluice.taker t where t.id = p_line returning t.n into n;
    n := coalesce(n, p_n);
    fresh_us := case when 'concurrency' <> any (v_room.kind) then v_room.life end;
  elsif not lost then
    capacity := nullif(v_room.most, 2147483647);
    wait_us := case when v_cost > capacity then 0
      else engine.queue(p_line, p_n, v_bucket, v_cost, soonest_us, p_wait, now_us) end;
  end if;
end $$;
