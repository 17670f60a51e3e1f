-- Returns the counters of windows, as of p_at, after p_units were granted at p_when. Units given back in a part that is
-- no longer counted make no difference. Units used beyond a grant whose part is no longer counted are counted in the
-- oldest part, so that no window misses them.
-- p_slots: the counters, by rule and part (ledger.slots).
-- p_kind: kind of each rule.
-- p_slot: length of each rule's parts, in microseconds.
-- p_at, p_when: times of the limiter's clock, in microseconds.
-- p_units: units granted; negative: given back.
create or replace function engine.count_in_windows(
  p_slots integer[], p_kind text[], p_slot bigint[], p_at bigint, p_when bigint, p_units bigint)
returns integer[] language plpgsql immutable as $$
declare
  v_part integer;
begin
  for i in 1 .. cardinality(p_slot) loop
    continue when p_kind[i] <> 'window';
    v_part := least(case when p_units > 0 then 61 else 62 end, greatest(1, p_at / p_slot[i] - p_when / p_slot[i] + 1));
    if v_part <= 61 then
      p_slots[i][v_part] := least(greatest(0, p_slots[i][v_part] + p_units), 2147483647);
    end if;
  end loop;
  return p_slots;
end $$;
