-- What became of lanes' jobs, with what a claim did not meet: lanes of which it asked for jobs (p_take; with costs p_over) and that had
-- none, because those were cancelled or moved to another lane; and jobs that somebody else has locked. A lane with such jobs that
-- gave some counts as one that has more; one that gave nothing leaves its list, so that it keeps no turn from others, and is
-- announced to the next claim.
create or replace function engine.complete_moves(p_moves engine.move[], p_lane sluice.lane[], p_take integer[], p_over integer[])
returns engine.move[] language plpgsql as $$
declare
  v_known bigint[] := array(select m.lane from unnest(p_moves) m);
begin
  p_moves := p_moves || array(
    select (l.id, 0, 0, null, 0, false, null, null)::engine.move from unnest(p_lane) with ordinality l
    where case when l.costed then p_over[l.ordinality] = 1 else p_take[l.ordinality] > 0 end and l.id <> all (v_known));
  if current_setting('sluice.held', true) is distinct from 'yes' then return p_moves; end if;
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), l.class, l.id, l.bound, 0 from unnest(p_lane) l join unnest(p_moves) m on m.lane = l.id where m.taken = 0;
  return array(select (m.lane, case when m.taken = 0 then m.late else m.seen + 1 end, m.taken, m.last, m.late, m.more and m.taken > 0,
                       m.head, m.turn)::engine.move from unnest(p_moves) m);
end $$;
