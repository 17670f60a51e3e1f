-- When fewer than p_room units are left in a window: when the newest part that must be forgotten for that is over.
-- p_parts: the parts of one rule, the newest first. p_slot: their length.
create or replace function engine.freed(p_parts integer[], p_slot bigint, p_at bigint, p_room bigint) returns bigint
language plpgsql immutable as $$
declare
  v_kept bigint := 0;
begin
  for k in 1 .. 61 loop
    v_kept := v_kept + p_parts[1][k];
    if v_kept >= p_room then return (p_at / p_slot - k + 62) * p_slot; end if;
  end loop;
  return p_at;
end $$;
