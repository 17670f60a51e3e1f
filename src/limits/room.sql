-- What each bucket allows at p_now: the newest ledger row, drained since, against the definition in force.
-- avail = jobs of one unit that fit now: the smaller of units, free by what counts units, and places, free by concurrency.
-- next = when p_need units are free (for each bucket; null: one), and a place (2^53 - 1: not by time); most = more units
-- than that never are; life: of a grant. The arithmetic is that of limits/decide.ts, in integers. p_further: for one more request of a job that runs, to which concurrency does not apply.
-- wall: what the store's clock shows then, by which calendars go. stale: the state is from an older definition, and was made
-- anew, which takes a while: renew writes it. Where that takes too long (is_long) it is as the older one has it, without room.
-- A pool (`sender*`) has the room of its members, and no state of its own: its version is null, so nothing is written.
-- What a share leaves to others has all room while its part is lent (lent), and a level of it owes no more than it holds:
-- what was borrowed is no debt. When it is lent may become sooner, as what the share waits for does: so it is worth a look
-- once in the time after which it is.
-- A bucket whose limit is not defined has no room: closed, not open. One that is paused has none for waiting jobs. Call under lock to act on the answer.
-- The arithmetic step by step, because starting up one query over all of it takes four times as long.
create or replace function engine.room(p_buckets bigint[], p_now bigint, p_further boolean default false, p_need bigint[] default null)
returns table (ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], slots integer[], quota bigint[], version integer, drain bigint[],
               weight bigint[], slot bigint[], margin bigint[], hold bigint, avail bigint, next bigint, period bigint, slack bigint, stale boolean,
               units bigint, places bigint, most bigint, life bigint, wall bigint)
language plpgsql stable as $$
declare
  v_in record;
  v_def sluice.limit_def;
  v_row sluice.ledger;
  v_is_long boolean;
  v_free bigint; v_need bigint;
  v_epoch sluice.epoch := (select e from sluice.epoch e limit 1);
begin
  for v_in in
    select u.o::integer as i, b.name, l.row as newest,
           not p_further and exists (select 1 from sluice.limit_pause p where p.name = b.name and p.key in ('', b.key)) as paused
    from unnest(p_buckets) with ordinality u (id, o) left join lateral (select k.name, k.key from sluice.bucket k where k.id = u.id limit 1) b on true
    left join lateral (select k as row from sluice.ledger k where k.bucket = u.id order by k.at desc, k.n desc limit 1) l on true
  loop
    ord := v_in.i; bucket := p_buckets[ord]; v_row := v_in.newest;
    -- Buckets of one limit stand side by side, more often than not.
    if v_in.name is distinct from v_def.name or v_def.name is null then
      select d.* into v_def from sluice.limit_def d where d.name = v_in.name order by d.version desc limit 1;
    end if;
    if v_def.members is not null and bucket = sluice.hash64(v_def.name || '*') then
      return query select * from engine.pool(v_def, ord, bucket, p_now, p_need[ord]);
      continue;
    end if;
    stale := v_row.version <> v_def.version; v_is_long := stale and engine.is_long(v_row, v_def);
    if v_is_long then select d.* into v_def from sluice.limit_def d where d.name = v_in.name and d.version = v_row.version; end if;
    n := coalesce(v_row.n, 0); hold := coalesce(v_row.hold, 0);
    now_at := greatest(p_now, v_row.at); wall := now_at - v_epoch.ahead_us; version := v_def.version; drain := v_def.drain; weight := v_def.weight; slot := v_def.slot; margin := v_def.margin;
    debt := null; slots := null; quota := null;
    avail := 0; units := 0; places := 0; most := 2147483647; life := v_def.grant_us; next := greatest(now_at + 1000000, hold); period := 1000000; slack := 0;
    if version is not null then
      if v_epoch.closed_us is not null then hold := greatest(hold, engine.reopens(v_epoch.closed_us, v_def.span)); end if;
      if stale and not v_is_long then
        select s.debt, s.slots, s.quota into v_row.debt, v_row.slots, v_row.quota from engine.rebuild(v_row, v_def) s;
      end if;
      if 0 < any (slot) then slots := engine.aged(v_row.slots, slot, v_row.at, now_at); end if;
      if margin is not null then quota := engine.periods(v_row, v_def, wall); end if;
      debt := coalesce(v_row.debt, array_fill(0::bigint, array[cardinality(drain)]));
      units := 2147483647; places := 2147483647; next := greatest(p_now, hold); period := 1; slack := null;
      for r in 1 .. cardinality(drain) loop
        if slot[r] > 0 then
          debt[r] := (select sum(s) from unnest(slots[r:r]) s);
          period := greatest(period, v_def.span[r] / v_def.room[r] + 1); slack := 0;
        elsif margin[r] > 0 then
          debt[r] := coalesce(engine.owed(quota[r:r], margin[r], wall), v_def.room[r]);
        elsif drain[r] > 0 then
          debt[r] := engine.drained(case when v_def.lend_us is null then debt[r] else least(debt[r], v_def.room[r] * weight[r]) end, drain[r], now_at - coalesce(v_row.at, now_at));
          period := greatest(period, weight[r] / drain[r] + 1);
          slack := least(slack, (v_def.room[r] - least(greatest(p_need[ord], 1), v_def.room[r])) * (weight[r] / drain[r]) / 2);
        end if;
        if drain[r] > 0 then next := greatest(next, now_at); elsif p_further then continue; end if;
        v_free := (v_def.room[r] * weight[r] - debt[r]) / weight[r];
        if drain[r] = 0 then places := greatest(0, least(places, v_free)); v_need := 1;
        else units := greatest(0, least(units, v_free)); most := least(most, v_def.room[r]); v_need := least(greatest(p_need[ord], 1), v_def.room[r]); end if;
        if v_free < v_need then next := greatest(next, engine.fit(v_def, r, debt[r], slots[r:r], quota[r:r], v_need, now_at, v_epoch.ahead_us)); end if;
      end loop;
      if v_def.lend_us is not null then
        select greatest(p_now, room.hold, least(room.next, l.at, room.now_at + v_def.lend_us)), case when l.at > room.now_at then room.units else 2147483647 end,
          case when l.at > room.now_at then room.places else 2147483647 end into next, units, places from engine.lent(bucket, v_def) l (at);
      end if;
      slack := coalesce(slack, 0); avail := least(units, places);
      if hold > now_at then avail := 0; units := 0; end if;
      if v_is_long then avail := 0; units := 0; places := 0; next := greatest(next, now_at + 1000000); v_def := null; end if;
      if v_in.paused then avail := 0; units := 0; next := 9007199254740991; end if;
    end if;
    return next;
  end loop;
end $$;
