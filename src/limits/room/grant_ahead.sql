-- Grants units of a bucket at the first instants at which its rates allow them, as if a claim had been made at each. So
-- one claim serves several releases of a saturated limit. No other unit is granted before the last of the instants
-- (engine.bucket_room). As `grantAhead` in test/limits/ahead.ts.
-- p_room: what engine.bucket_room returned.
-- p_units: how many units, at most.
-- p_now: the limiter's clock, in microseconds. No instant is more than `engine.most_ahead_us` later.
-- instants: when each unit may be used, in order. Null: this bucket grants nothing ahead, because it is held, has no
-- rate, or a concurrency, or a part that is lent, or because a window or a quota has fewer units left.
-- room: the bucket at the last instant. Its debts lack the weight of the units, which engine.append_ledger adds.
create or replace function engine.grant_ahead(
  p_room engine.room, p_units integer, p_now bigint, out room engine.room, out instants bigint[])
language plpgsql stable as $$
declare
  v_most constant bigint := engine.most_ahead_us();
  v_def sluice.limit_def;
  v_debt bigint[] := p_room.debt;
  v_at bigint := p_room.now_at;
  v_next bigint;
begin
  if p_room.version is null or p_room.trial_us > 0 or p_room.hold > p_now or 'concurrency' = any (p_room.kind)
    or 'rate' <> all (p_room.kind) then return; end if;
  select d.* into v_def from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.version = p_room.version
  where b.id = p_room.bucket;
  if v_def.lend_us is not null then return; end if;
  for r in 1 .. cardinality(v_def.kind) loop
    -- A quota's next period may begin before the last instant, and may have been used before a clock was set back.
    if v_def.kind[r] not in ('rate', 'pace') and v_def.capacity[r] - greatest(v_debt[r],
      case v_def.kind[r] when 'quota' then p_room.quota[r][6] end) < p_units then return; end if;
  end loop;
  room := p_room; instants := '{}';
  if p_room.next > p_now + v_most then return; end if;
  for u in 1 .. p_units loop
    v_next := v_at;
    for r in 1 .. cardinality(v_def.kind) loop
      continue when v_def.kind[r] <> 'rate' or v_debt[r] <= (v_def.capacity[r] - 1) * v_def.weight[r];
      v_next := greatest(v_next, engine.rule_free_at(v_def, r, v_debt, null, null, 1, v_at, 0, false));
    end loop;
    exit when v_next > p_now + v_most;
    for r in reverse cardinality(v_def.kind) .. 1 loop  -- a pace before its rate
      v_debt[r] := engine.drain_debt(v_debt[r], v_def.drain[r], v_next - v_at);
      if v_def.kind[r + 1] = 'pace' then
        v_debt[r] := engine.ease_debt(v_def, r, v_debt) + v_def.weight[r];
        v_debt[r + 1] := v_debt[r + 1] + v_def.weight[r + 1];
      elsif v_def.kind[r] = 'rate' then
        v_debt[r] := v_debt[r] + v_def.weight[r];
      end if;
    end loop;
    v_at := v_next; instants := instants || v_at;
  end loop;
  room.now_at := v_at; room.wall := room.wall + v_at - p_room.now_at;
  if room.parts is not null then room.parts :=
    engine.advance_windows(room.parts, v_def.kind, v_def.part_us, p_room.now_at, v_at); end if;
  for r in 1 .. cardinality(v_def.kind) loop
    continue when v_def.kind[r] not in ('rate', 'pace');
    v_debt[r] := v_debt[r] - v_def.weight[r] * cardinality(instants);
  end loop;
  room.debt := v_debt;
end $$;
