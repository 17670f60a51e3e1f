-- What a decision takes of each bucket: units (the costs of the jobs taken, or their number), and places, as many as
-- jobs.
-- p_moves: what became of p_lane. A loop, because arrays joined in SQL are compared each with each.
create or replace function engine.units(
  p_lane sluice.lane[], p_moves engine.move[], p_buckets bigint[], out units bigint[], out places bigint[])
language plpgsql immutable as $$
declare
  v_ids bigint[] := array(select l.id from unnest(p_lane) with ordinality l order by l.ordinality);
  v_move engine.move;
  v_uses bigint[];
  b integer;
begin
  units := array_fill(0::bigint, array[cardinality(p_buckets)]);
  places := units;
  foreach v_move in array coalesce(p_moves, '{}') loop
    v_uses := p_lane[array_position(v_ids, v_move.lane)].buckets;
    for u in 1 .. coalesce(cardinality(v_uses), 0) loop
      b := array_position(p_buckets, v_uses[u]);
      units[b] := units[b] + coalesce(v_move.costs[u], v_move.taken);
      places[b] := places[b] + v_move.taken;
    end loop;
  end loop;
end $$;
