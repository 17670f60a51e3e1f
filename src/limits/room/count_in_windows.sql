-- Returns the counters of windows, as of p_at, after p_units were granted at p_when. Units given back in a part that is
-- no longer counted make no difference. Units used beyond a grant whose part is no longer counted are counted in the
-- oldest part, so that no window misses them.
-- p_parts: the counters, by rule and part (ledger.parts).
-- p_kind: kind of each rule.
-- p_part_us: length of each rule's parts, in microseconds.
-- p_at, p_when: times of the limiter's clock, in microseconds.
-- p_units: units granted; negative: given back.
create or replace function engine.count_in_windows(
  p_parts integer[], p_kind text[], p_part_us bigint[], p_at bigint, p_when bigint, p_units bigint)
returns integer[] language plpgsql immutable as $$
declare
  v_part integer;
begin
  for i in 1 .. cardinality(p_part_us) loop
    continue when p_kind[i] <> 'window';
    v_part := least(case when p_units > 0 then 61 else 62 end,
      greatest(1, p_at / p_part_us[i] - p_when / p_part_us[i] + 1));
    if v_part <= 61 then
      p_parts[i][v_part] := least(greatest(0, p_parts[i][v_part] + p_units), 2147483647);
    end if;
  end loop;
  return p_parts;
end $$;
