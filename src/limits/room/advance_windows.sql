-- Moves the counters of windows from p_from to p_to: inserts new parts at the front and drops as many at the end. A
-- window is counted in equal parts of time, the newest first; one row of counters for each rule.
-- p_parts: the counters; null: nothing was counted yet.
-- p_kind: kind of each rule; only windows are moved.
-- p_part_us: length of each rule's parts, in microseconds.
-- p_from, p_to: times of the limiter's clock, in microseconds.
create or replace function engine.advance_windows(p_parts integer[], p_kind text[], p_part_us bigint[], p_from bigint,
  p_to bigint)
returns integer[] language plpgsql immutable as $$
declare
  v_parts integer[] := array_fill(0, array[cardinality(p_part_us), 61]);
  v_by integer;
begin
  if p_parts is null or p_from = p_to then return coalesce(p_parts, v_parts); end if;
  for i in 1 .. cardinality(p_part_us) loop
    continue when p_kind[i] <> 'window';
    v_by := least(61, p_to / p_part_us[i] - p_from / p_part_us[i]);
    for k in v_by + 1 .. 61 loop
      v_parts[i][k] := p_parts[i][k - v_by];
    end loop;
  end loop;
  return v_parts;
end $$;
