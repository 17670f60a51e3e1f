-- Returns true if a worker should claim again at once, after a claim that got fewer jobs than it wanted: lanes are left
-- that were not read, or that got less than they could take because another lane had fewer jobs than it was given.
-- p_lanes, p_ids: the lanes of the claim, and their ids
-- p_take: how many jobs each was given
-- p_blocked: the position of the bucket that denied each; 0: none did
-- p_listed: the same, but 0 where only a label denied it, so that the lane is in the ready list now
-- p_moves: what became of the lanes that were given jobs
-- p_granted: how many jobs the claim got
-- p_more: some lanes have more jobs than were read
-- p_unread: lanes are left that were not read
-- p_costed: some lanes have costs
-- p_labels: some lanes require a label or a pool
-- p_locked: it met jobs that other transactions have locked, so the worker claims soon anyway
create or replace function engine.has_more_for_claim(
  p_lanes sluice.lane[], p_ids bigint[], p_take integer[], p_blocked integer[], p_listed integer[],
  p_moves engine.move[], p_granted integer, p_more boolean, p_unread boolean, p_costed boolean, p_labels boolean,
  p_locked boolean)
returns boolean language plpgsql as $$
declare
  -- Lanes that had fewer jobs than they were given.
  v_short constant bigint[] := array(
    select m.lane from unnest(p_moves) m where not p_locked and m.seen < p_take[array_position(p_ids, m.lane)]);
  -- The lists of other lanes that a label denied, which are in the ready list now.
  v_barred constant bigint[] := array(
    select l.list from unnest(p_lanes) with ordinality l
    where p_blocked[l.ordinality] > 0 and p_listed[l.ordinality] = 0 and l.id <> all (v_short));
begin
  if v_barred <> '{}' then
    -- The label has room that lanes with fewer jobs were given. Or a lane from the list of a bucket kept what the label
    -- has left, because units of that bucket were reserved for its next job: now that job waits for its turn.
    if v_short <> '{}' or p_costed and 0 <> any (v_barred) then return true; end if;
    -- The next claim would find the label without room again.
    if p_granted = 0 then return p_more; end if;
  end if;
  -- Lanes with costs may be denied in their places again and again: others are read if one left the ready list.
  -- If nobody was served or denied, the turns of all lanes were moved past those of lanes that were not read.
  return p_more
    or p_unread and (p_granted > 0 or not p_costed or 0 = all (p_take) and 0 = any (p_blocked) or exists (
      select 1 from unnest(p_lanes) with ordinality l where l.list = 0 and p_listed[l.ordinality] > 0))
    -- Behind jobs that went away meanwhile, or were set aside, there may be others.
    or exists (
      select 1 from unnest(p_moves) m
      where not p_locked and not p_labels and m.seen > m.taken
        or m.more and m.seen = m.taken and (p_blocked[array_position(p_ids, m.lane)] = 0
          or m.taken < p_take[array_position(p_ids, m.lane)]))
    -- Room of a pool that was given to a lane with fewer jobs is left for the others.
    or exists (
      select 1 from unnest(p_take, p_blocked) u (take, blocked)
      where u.take = 0 and (u.blocked = 0 and p_granted > 0 or (u.blocked = 0 or p_labels) and v_short <> '{}'));
end $$;
