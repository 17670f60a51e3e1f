-- Moves the turns that a claim reads (p_most of each list) and that stand behind their fair key to where that really is, and
-- returns how many. A fair key that was served in one list stays behind in its others until they are looked at; where more of such
-- turns than are read stand before all others, nobody knows who comes after them, and nobody could be served.
create or replace function engine.move_turns(p_classes bigint[], p_now bigint, p_since bigint, p_most integer) returns integer
language plpgsql as $$
declare
  v_count integer;
begin
  with turn as (
    select t.lane, max(t.lift + t.own) over (partition by (t.lane).fair) - t.lift as goal from engine.read_turns(p_classes, p_now, p_since, p_most) t
  )
  update sluice.lane l set v = l.v + 1, vstart = t.goal from turn t where l.id = (t.lane).id and l.v = (t.lane).v and t.goal > (t.lane).vstart;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
