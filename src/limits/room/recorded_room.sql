-- Returns what each bucket allows at p_now: its newest ledger row, drained since, under the definition in force. The
-- arithmetic is that of limits/decide.ts, in integers. To act on the answer, the caller locks the buckets first. Claims
-- call this function, and functions that have just renewed the buckets; all others call engine.bucket_room.
-- p_now: null: this function reads the clock, once; only then p_cap matters.
-- p_need: units that are waited for, from one to as many as the bucket holds; null: one. The newest code of a limit may
-- allow more at once than older code that still runs. For such a need, next is at least a second from now, because
-- nobody knows when the older code ends.
-- p_exact: takes p_need as it is: more than the bucket holds (for several waiters together), or less than one (as if
-- units had been given back: one at 0, two at -1).
-- p_states: newest rows and definitions of the buckets, and of the members of pools, in place of the recorded ones
-- (engine.renewed_state).
-- The result for each bucket:
-- avail: jobs of one unit that fit now: the smaller of units and places.
-- units, places: free by the rules that count units; free by concurrency.
-- next: when p_need units and a place are free (2^53 - 1: time alone does not free them).
-- most: more units than that are never free under this definition.
-- period, slack: microseconds in which one unit becomes free; how long it may stay unused before others are lost. A
-- pace forgives units that are late by up to part_us. The slack is three quarters of that, because workers come later
-- than planned. The period is shorter by what is left of the slack after whole units, so that workers do not lag behind
-- the pace.
-- life: microseconds for which a grant may be used.
-- wall: what the store's clock shows then, by which calendars go.
-- trial_us: above 0: the vendor has refused requests. The bucket grants one request at a time, and after each it is
-- held for so many microseconds, until the vendor has answered (engine.refuse_buckets, engine.accept_buckets).
-- stale: engine.renew_bucket_states has to write the state anew, which takes a while; until then the bucket has no
-- room. Its newest row is under an older definition, which the other results then go by; or its quotas cannot be
-- computed from what is kept (engine.advance_quota_periods).
-- read_at: p_now, or what this function read instead; now_at is not before the newest ledger row.
-- Buckets of their own kind:
-- A pool (`sender*`) has the room of its members, and no state: its version is null, so nothing is written.
-- What a share leaves to others has a bucket, which is not limited while the share's part is lent
-- (engine.share_lent_from). Its rates owe no more than they hold, because what was borrowed is no debt. The part may be
-- lent sooner than is known now, if what the share waits for comes sooner: so next is at most lend_us from now.
-- A bucket whose limit is not defined has no room, and neither has one that is parked: then no rule is computed.
-- A bucket that is paused has no room for waiting jobs. A bucket that has granted units ahead of time has none before
-- the last of them may be used.
-- A pace denies nothing, but eases its rate (engine.ease_debt).
-- The arithmetic goes step by step, because starting one query over all of it takes four times as long. There are few
-- steps, because each expression of PL/pgSQL costs 3 us when a transaction first evaluates it.
create or replace function engine.recorded_room(
  p_buckets bigint[], p_now bigint, p_further boolean default false, p_need bigint[] default null,
  p_exact boolean default false, p_cap bigint default null, p_states engine.state[] default null)
returns engine.room[]
language plpgsql stable as $$
declare
  v_rooms engine.room[] := '{}'; v_in record; v_def sluice.limit_def; v_at bigint; v_wall bigint; v_most bigint;
  v_old boolean := false; v_stale boolean; v_hold bigint; v_debt bigint[]; v_parts integer[]; v_quota bigint[];
  v_free bigint; v_need bigint; v_units bigint; v_places bigint; v_next bigint; v_period bigint; v_slack bigint;
begin
  for v_in in select * from engine.read_buckets(p_buckets, p_further) loop
    p_now := coalesce(p_now, engine.limiter_time(v_in.clock_offset_us, v_in.watched, p_cap));
    if p_states is not null then v_in.newest := (select s.newest from unnest(p_states) s where s.bucket = v_in.id);
      v_def := (select s.def from unnest(p_states) s where s.bucket = v_in.id);
    elsif (v_in.name, v_in.def_key) is distinct from (v_def.name, v_def.key) or v_old or v_in.parked then  -- seldom
      select * into v_def from sluice.limit_def d
      where d.name = v_in.name and d.key = v_in.def_key and v_in.parked is null order by d.version desc limit 1; end if;
    if v_def.members is not null and v_in.id = sluice.hash64(v_def.name || '*') then
      v_rooms := v_rooms || engine.pool_room(v_def, v_in.ord, v_in.id, p_now, p_now - v_in.clock_offset_us,
        engine.recorded_room(array(select sluice.hash64(v_def.name || ':' || m) from unnest(v_def.members) m), p_now,
          false, array_fill(p_need[v_in.ord], array[cardinality(v_def.members)]), p_states => p_states));
      continue; end if;
    v_at := greatest(p_now, v_in.at); v_wall := v_at - v_in.clock_offset_us; v_slack := null;
    v_hold := least(coalesce(v_in.hold, 0), 9007199254740991); v_old := (v_in.newest).version <> v_def.version is true;
    if v_old then select * into v_def
      from sluice.limit_def d where d.name = v_in.name and d.version = (v_in.newest).version; end if;
    if v_in.closed_us is not null then
      v_hold := greatest(v_hold, engine.limit_reopens_at(v_in.closed_us, v_def.kind, v_def.span)); end if;
    v_debt := coalesce((v_in.newest).debt, array_fill(0::bigint, array[coalesce(cardinality(v_def.kind), 0)]));
    v_parts := case when 'window' = any (v_def.kind) then
        engine.advance_windows((v_in.newest).parts, v_def.kind, v_def.part_us, v_in.at, v_at) end;
    v_quota := case when v_def.margin is not null then engine.advance_quota_periods(v_in.newest, v_def, v_wall) end;
    v_stale := v_old or v_def.margin is not null and v_quota is null; v_next := greatest(p_now, v_hold); v_period := 1;
    v_units := 2147483647; v_places := case when v_in.trial_us > 0 then 1 else v_units end; v_most := v_units;
    for r in reverse coalesce(cardinality(v_def.kind), 0) .. 1 loop  -- a pace before its rate
      v_need := p_need[v_in.ord]; if not p_exact then v_need := least(greatest(v_need, 1), v_def.capacity[r]); end if;
      case v_def.kind[r] when 'rate', 'pace' then
          if v_def.lend_us is not null then v_debt[r] := least(v_debt[r], v_def.capacity[r] * v_def.weight[r]); end if;
          v_debt[r] := engine.drain_debt(v_debt[r], v_def.drain[r], v_at - coalesce(v_in.at, v_at));
          if v_def.kind[r + 1] = 'pace' then v_debt[r] := engine.ease_debt(v_def, r, v_debt);
          else v_free := v_def.weight[r] / v_def.drain[r]; v_slack := least(v_slack, case v_def.part_us[r]
              when 0 then (v_def.capacity[r] - v_need) * v_free / 2 else v_def.part_us[r] * 3 / 4 end);
            v_period := greatest(v_period, v_free + 1 - v_def.part_us[r] * 3 / 4 % (v_free + 1)); end if;
          continue when v_def.kind[r] = 'pace';
        when 'window' then v_debt[r] := (select sum(s) from unnest(v_parts[r:r]) s);
          v_period := greatest(v_period, v_def.span[r] / v_def.capacity[r] + 1); v_slack := 0;
        when 'quota' then v_debt[r] := coalesce(greatest(v_quota[r][4], v_quota[r][5],
            case when v_wall >= v_quota[r][3] - v_def.margin[r] then v_quota[r][6] end), v_def.capacity[r]);
        when 'concurrency' then continue when p_further; v_need := 1; end case;
      v_free := (v_def.capacity[r] * v_def.weight[r] - v_debt[r]) / v_def.weight[r];
      if v_def.kind[r] = 'concurrency' then v_places := greatest(0, least(v_places, v_free));
      else v_units := greatest(0, least(v_units, v_free)); v_most := least(v_most, v_def.capacity[r]);
        v_next := greatest(
          v_next, v_at + case when r > v_def.own and p_need[v_in.ord] > v_need then 1000000 else 0 end); end if;
      if v_free < v_need or v_need < 1 and v_debt[r] > (v_def.capacity[r] - v_need) * v_def.weight[r] then
        v_next := greatest(v_next, engine.rule_free_at(
          v_def, r, v_debt, v_parts, v_quota, v_need, v_at, v_in.clock_offset_us, p_exact)); end if;
    end loop;
    if v_def.lend_us is not null then v_free := engine.share_lent_from(v_in.id, v_def);
      if v_free <= v_at then v_units := 2147483647; v_places := v_units; end if;
      v_next := greatest(p_now, v_hold,
        least(v_next, v_free, v_at + v_def.lend_us, case when p_exact then 0 end)); end if;
    if v_hold > v_at or v_in.paused or v_stale or v_def.version is null
      or v_at > p_now and engine.is_granted_until(v_in.id, v_at) then v_units := 0;
      v_places := case when v_stale then 0 else v_places end; v_next := greatest(v_next, case when v_in.paused
        then 9007199254740991 when v_stale or v_def.version is null then v_at + 1000000 else v_at end); end if;
    v_rooms := v_rooms || (v_in.ord, v_in.id, coalesce(v_in.n, 0), v_at, v_debt, v_parts, v_quota, v_def.version,
      v_def.kind, v_def.drain, v_def.weight, v_def.part_us, v_def.margin, v_hold, least(v_units, v_places),
      v_next, case when v_def.version is null then 1000000 else v_period end, coalesce(v_slack, 0), v_stale, v_units,
      v_places, v_most, v_def.grant_us, v_wall, coalesce(v_in.trial_us, 0), p_now)::engine.room;
  end loop;
  return v_rooms;
end $$;
