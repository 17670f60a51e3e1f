-- The parts of windows (one row per rule, the newest part first) as seen at p_to: new ones at the front, as many
-- forgotten at the end. p_slots null: nothing was counted yet. p_slot: length of each rule's parts.
create or replace function engine.aged(p_slots integer[], p_kind text[], p_slot bigint[], p_from bigint, p_to bigint)
returns integer[] language plpgsql immutable as $$
declare
  v_slots integer[] := array_fill(0, array[cardinality(p_slot), 61]);
  v_by integer;
begin
  if p_slots is null or p_from = p_to then return coalesce(p_slots, v_slots); end if;
  for i in 1 .. cardinality(p_slot) loop
    continue when p_kind[i] <> 'window';
    v_by := least(61, p_to / p_slot[i] - p_from / p_slot[i]);
    for k in v_by + 1 .. 61 loop
      v_slots[i][k] := p_slots[i][k - v_by];
    end loop;
  end loop;
  return v_slots;
end $$;
