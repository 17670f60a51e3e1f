-- What became of lanes' jobs, where a claim left some that somebody else has locked: each lane counts as one that has more.
create or replace function engine.mark_held(p_moves engine.move[]) returns engine.move[] language plpgsql as $$
begin
  if current_setting('sluice.held', true) is distinct from 'yes' then return p_moves; end if;
  return array(select (m.lane, m.seen + 1, m.taken, m.last, m.late, m.more, m.head, m.costs)::engine.move from unnest(p_moves) m);
end $$;
