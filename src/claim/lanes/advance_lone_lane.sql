-- Advances a ready lane that is alone and has more jobs, after a claim of some of them (p_move). The lane stays in the
-- ready list, as in most claims of a backlog, so only the due time of that list, which sleepers read, is updated.
create or replace function engine.advance_lone_lane(p_now bigint, p_lane sluice.lane, p_move engine.move) returns void
language plpgsql as $$
begin
  update sluice.lane l
  set v = l.v + 1, bound = p_move.last + 1, rank = greatest(l.rank, p_move.rank), denied = 0,
    vstart = l.vstart + p_move.taken * (1000000 / greatest(1, l.weight))
  where l.id = p_lane.id and l.v = p_lane.v;
  perform engine.update_ready_list(p_lane.class, p_now, p_lane.vstart);
end $$;
