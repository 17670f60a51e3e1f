-- Returns what each bucket allows at p_now: its newest ledger row, drained since, under the definition in force. The
-- arithmetic is that of limits/decide.ts, in integers. To act on the answer, the caller locks the buckets first.
-- avail: jobs of one unit that fit now: the smaller of units and places.
-- units, places: free by the rules that count units; free by concurrency.
-- next: when p_need units and a place are free (2^53 - 1: time alone does not free them).
-- most: more units than that are never free under this definition.
-- period, slack: microseconds in which one unit becomes free; how long it may stay unused before others are lost.
-- A pace forgives less than a unit, so its period is that much shorter: workers must not lag behind it.
-- life: microseconds for which a grant may be used.
-- wall: what the store's clock shows then, by which calendars go.
-- stale: the state was rebuilt from one under an older definition, which takes a while: engine.renew_bucket_states
-- writes it. Where that takes too long (engine.is_ledger_too_long), the state is that under the older definition,
-- without room.
-- p_buckets: their ids.
-- p_now: the limiter's clock, in microseconds.
-- p_further: for one more request of a running job, to which concurrency does not apply.
-- p_need: units of each bucket that are waited for, from one to as many as it holds. Null: one. If more than older
-- code allows is needed, next is a second later at least, as nobody knows when that code is gone.
-- p_exact: takes p_need as it is: more than the bucket holds (for several waiters together), or below one (as if units
-- had been given back: one at 0, two at -1).
-- probe: above 0, the vendor has refused requests: one grant at a time, after which the bucket is held for so many
-- microseconds, until the vendor has answered (engine.refuse_buckets, engine.accept_buckets).
-- A pool (`sender*`) has the room of its members, and no state of its own: its version is null, so nothing is written.
-- The bucket of what a share leaves to others is not limited while the share's part is lent (engine.share_lent_from). A
-- rate of it owes no more than it holds: what was borrowed is no debt. The part may be lent sooner than is known now,
-- because what the share waits for may come sooner: so next is at most lend_us from now.
-- A bucket has no room if its limit is not defined (closed, not open), or if it is parked: then nothing is computed.
-- A bucket that is paused has no room for waiting jobs.
-- A pace denies nothing, but eases its rate (engine.ease_debt).
-- The arithmetic goes step by step, because starting one query over all of it takes four times as long.
create or replace function engine.bucket_room(
  p_buckets bigint[], p_now bigint, p_further boolean default false, p_need bigint[] default null,
  p_exact boolean default false)
returns table (
  ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], slots integer[], quota bigint[], version integer,
  kind text[], drain bigint[], weight bigint[], slot bigint[], margin bigint[], hold bigint, avail bigint, next bigint,
  period bigint, slack bigint, stale boolean, units bigint, places bigint, most bigint, life bigint, wall bigint,
  probe bigint)
language plpgsql stable as $$
declare
  v_in record; v_def sluice.limit_def; v_row sluice.ledger; v_is_long boolean; v_free bigint; v_need bigint;
  v_epoch sluice.epoch := (select e from sluice.epoch e limit 1);
begin
  for v_in in select u.o::integer as i, b.name, b.parked, not p_further and exists (
      select 1 from sluice.limit_pause p where p.name = b.name and p.key in ('', b.key)) as paused,
      (select k from sluice.ledger k where k.bucket = u.b and b.parked is null order by k.at desc, k.n desc limit 1)
        as newest
    from unnest(p_buckets) with ordinality u (b, o)
    left join lateral (select k.name, k.key, k.parked from sluice.bucket k where k.id = u.b limit 1) b on true
  loop
    ord := v_in.i; bucket := p_buckets[ord]; v_row := v_in.newest; probe := coalesce(v_row.probe, 0);
    if v_in.name is distinct from v_def.name or v_def.name is null or v_in.parked then  -- mostly it is the same
      select d.* into v_def
      from sluice.limit_def d where d.name = v_in.name and v_in.parked is null order by d.version desc limit 1; end if;
    if v_def.members is not null and bucket = sluice.hash64(v_def.name || '*') then
      return query select * from engine.pool_room(v_def, ord, bucket, p_now, p_need[ord]); continue; end if;
    stale := v_row.version <> v_def.version; v_is_long := stale and engine.is_ledger_too_long(v_row, v_def);
    if v_is_long then
      select d.* into v_def from sluice.limit_def d where d.name = v_in.name and d.version = v_row.version; end if;
    n := coalesce(v_row.n, 0); hold := least(coalesce(v_row.hold, 0), 9007199254740991); version := v_def.version;
    now_at := greatest(p_now, v_row.at); wall := now_at - v_epoch.ahead_us; life := v_def.grant_us; debt := null;
    next := case when v_in.parked then 9007199254740991 else greatest(now_at + 1000000, hold) end; kind := v_def.kind;
    drain := v_def.drain; weight := v_def.weight; slot := v_def.slot; margin := v_def.margin; slots := null;
    quota := null; avail := 0; units := 0; places := 0; period := 1000000; slack := 0; most := 2147483647;
    if version is not null then
      if v_epoch.closed_us is not null then
        hold := greatest(hold, engine.limit_reopens_at(v_epoch.closed_us, kind, v_def.span)); end if;
      if stale and not v_is_long then
        select r.debt, r.slots, r.quota into v_row.debt, v_row.slots, v_row.quota
        from engine.rebuild_bucket_state(v_row, v_def) r; end if;
      if 'window' = any (kind) then slots := engine.advance_windows(v_row.slots, kind, slot, v_row.at, now_at); end if;
      if margin is not null then quota := engine.read_quota_periods(v_row, v_def, wall); end if;
      debt := coalesce(v_row.debt, array_fill(0::bigint, array[cardinality(kind)])); next := greatest(p_now, hold);
      units := 2147483647; places := case when probe > 0 then 1 else units end; period := 1; slack := null;
      for r in reverse cardinality(kind) .. 1 loop  -- a pace before its rate
        v_need := case when p_exact then p_need[ord] else least(greatest(p_need[ord], 1), v_def.room[r]) end;
        case kind[r] when 'rate', 'pace' then
            if v_def.lend_us is not null then debt[r] := least(debt[r], v_def.room[r] * weight[r]); end if;
            debt[r] := engine.drain_debt(debt[r], drain[r], now_at - coalesce(v_row.at, now_at));
            if kind[r + 1] = 'pace' then debt[r] := engine.ease_debt(v_def, r, debt);
            else period := greatest(period, weight[r] / drain[r] + 1 - slot[r] / 2 % (weight[r] / drain[r] + 1));
              slack := least(slack, (case kind[r] when 'rate' then (v_def.room[r] - v_need) * (weight[r] / drain[r])
              else slot[r] end) / 2); end if;
            continue when kind[r] = 'pace';
          when 'window' then debt[r] := (select sum(s) from unnest(slots[r:r]) s);
            period := greatest(period, v_def.span[r] / v_def.room[r] + 1); slack := 0;
          when 'quota' then debt[r] := coalesce(engine.quota_owed(quota[r:r], margin[r], wall), v_def.room[r]);
          when 'concurrency' then continue when p_further; v_need := 1; end case;
        v_free := (v_def.room[r] * weight[r] - debt[r]) / weight[r];
        if kind[r] = 'concurrency' then places := greatest(0, least(places, v_free));
        else units := greatest(0, least(units, v_free)); next := greatest(next, now_at);
          most := least(most, v_def.room[r]);
          if r > v_def.own and p_need[ord] > v_need then next := greatest(next, now_at + 1000000); end if; end if;
        if v_free < v_need or v_need < 1 and debt[r] > (v_def.room[r] - v_need) * weight[r] then
          next := greatest(next,
            engine.rule_free_at(v_def, r, debt, slots, quota, v_need, now_at, v_epoch.ahead_us, p_exact)); end if;
      end loop; if v_def.lend_us is not null then v_free := engine.share_lent_from(bucket, v_def);
        if v_free <= now_at then units := 2147483647; places := units; end if;
        next := greatest(
          p_now, hold, least(next, v_free, now_at + v_def.lend_us, case when p_exact then 0 end)); end if;
      slack := coalesce(slack, 0); avail := least(units, places); if hold > now_at then avail := 0; units := 0; end if;
      if v_is_long then
        avail := 0; units := 0; places := 0; next := greatest(next, now_at + 1000000); v_def := null; end if;
      if v_in.paused then avail := 0; units := 0; next := 9007199254740991; end if;
    end if; return next;
  end loop;
end $$;
