-- Adds to the moves of lanes what a claim could not mark: lanes from which it wanted jobs and that had none, because
-- those were cancelled or moved to another lane; and jobs that another transaction has locked (`engine.try_lock_job`
-- sets sluice.met_locked). A lane with such jobs that gave others counts as one that has more. A lane that gave none
-- leaves its list, and is announced to the next claim: it has had its turn, because a claim of one job would otherwise
-- meet the same lane again and again.
-- p_moves: the moves of lanes that gave jobs.
-- p_lane: the lanes of the claim.
-- p_take: how many jobs it wanted from each lane.
-- p_over: 1 for a lane with costs whose jobs were all taken. Null: no lane has costs.
create or replace function engine.complete_lane_moves(
  p_moves engine.move[], p_lane sluice.lane[], p_take integer[], p_over integer[])
returns engine.move[] language plpgsql as $$
declare
  v_known bigint[] := array(select m.lane from unnest(p_moves) m);
begin
  p_moves := p_moves || array(
    select (l.id, 0, 0, null, false, null, null)::engine.move from unnest(p_lane) with ordinality l
    where case when l.costed then p_over[l.ordinality] = 1 else p_take[l.ordinality] > 0 end
      and l.id <> all (v_known));
  if current_setting('sluice.met_locked', true) is distinct from 'yes' then return p_moves; end if;
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), l.class, l.id, l.bound, 0
  from unnest(p_lane) l join unnest(p_moves) m on m.lane = l.id where m.taken = 0;
  return array(
    select (m.lane, case when m.taken = 0 then 0 else m.seen + 1 end, m.taken, m.last, m.more and m.taken > 0,
            m.rank, case when m.taken = 0 then 1 else m.turn_units end)::engine.move
    from unnest(p_moves) m);
end $$;
