-- Moves turns that stand behind the real position of their fair key forward to it, and returns how many it moved. Only
-- turns that a claim reads are moved. A fair key that was served in one list stays behind in its other lists until a
-- claim looks at them. When more such turns than a claim reads stand in front, no claim knows which lanes come after
-- them, and no lane can be served.
-- p_since: lists that were due before this time are not read
-- p_most: how many turns of each list a claim reads
create or replace function engine.move_turns(p_classes bigint[], p_now bigint, p_since bigint, p_most integer)
returns integer
language plpgsql as $$
declare
  v_count integer;
begin
  with turn as (
    select t.lane, max(t.lift + t.own) over (partition by (t.lane).fair) - t.lift as goal
    from engine.read_turns(p_classes, p_now, p_since, p_most) t
  )
  update sluice.lane l set v = l.v + 1, vstart = t.goal from turn t
  where l.id = (t.lane).id and l.v = (t.lane).v and t.goal > (t.lane).vstart;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
