-- Divides the room of buckets among lanes in fair order: brings the lanes into the form of `engine.divide_by_turns`,
-- and reads the next jobs of lanes whose jobs have costs. It does not know how many jobs lanes without costs have.
-- p_rooms: what the buckets allow, also ahead of time. What a pool has available is the sum of its members' room, and
-- decides where no job needs more than one unit; its other numbers are those of one member.
create or replace function engine.divide_room(
  p_want integer, p_found engine.candidates, p_room engine.claim_room, p_rooms engine.room[])
returns engine.division language plpgsql as $$
declare
  v_done engine.division;
  v_lanes constant sluice.lane[] := p_found.lanes;
  -- Enough, unless few lanes take all.
  v_each constant integer := 2 * p_want / cardinality(v_lanes) + 1;
  v_fairs bigint[];
  v_lane sluice.lane;
  v_bucket bigint;
  v_uses integer[] := '{}';
  v_from integer[] := '{1}';
  v_at integer[] := array_fill(0, array[cardinality(v_lanes)]);
  v_next integer := 1;
  v_n bigint[]; v_fair integer[]; v_starts bigint[]; v_costed boolean;
  v_units bigint[]; v_places bigint[]; v_most bigint[];
  v_read bigint[]; v_whole boolean[]; v_seqs bigint[]; v_costs integer[];
begin
  select array_agg(s.fair order by s.start, s.o), array_agg(s.start order by s.start) into v_fairs, v_starts
  from (select l.fair, max(p_found.starts[l.ordinality]) as start, min(l.ordinality) as o
        from unnest(v_lanes) with ordinality l group by 1) s;
  foreach v_lane in array v_lanes loop
    foreach v_bucket in array v_lane.buckets loop
      v_uses := v_uses || array_position(p_room.buckets, v_bucket); end loop;
    v_from := v_from || cardinality(v_uses) + 1;
  end loop;
  select array_fill(p_want::bigint, array[cardinality(v_lanes)]), bool_or(l.costed),
         array_agg(array_position(v_fairs, l.fair) order by l.ordinality)
  into v_n, v_costed, v_fair from unnest(v_lanes) with ordinality l;
  v_done.more := false;
  select array_agg(case when v_costed then r.units else r.avail end order by r.ord),
         array_agg(case when v_costed then r.places else r.avail end order by r.ord), array_agg(r.most order by r.ord)
  into v_units, v_places, v_most from unnest(p_rooms) r;
  if v_costed then
    select h.n, h.whole, h.seqs, h.costs into v_read, v_whole, v_seqs, v_costs
    from engine.read_costed_jobs(v_lanes, p_room.buckets, v_most, v_each, p_room.at) h;
    for i in 1 .. cardinality(v_lanes) loop
      continue when v_read[i] is null;
      v_at[i] := v_next;
      v_next := v_next + v_read[i] * (v_from[i + 1] - v_from[i] + 1);
      v_n[i] := v_read[i];
    end loop;
  end if;
  select s.take, s.blocked into v_done.take, v_done.blocked
  from engine.divide_by_turns(
    p_want => p_want, p_n => v_n, p_vstart => v_starts, p_step => p_found.steps, p_fair => v_fair, p_from => v_from,
    p_uses => v_uses, p_units => v_units, p_places => v_places, p_horizon => p_found.horizon, p_at => v_at,
    p_costs => v_costs, p_first => p_room.first) s;
  if not v_costed then return v_done; end if;
  select array_agg(l.costed and v_done.take[l.ordinality] = v_read[l.ordinality] and v_whole[l.ordinality]
                   order by l.ordinality)::integer[],
         bool_or(l.costed and v_done.take[l.ordinality] = v_read[l.ordinality] and not v_whole[l.ordinality])
  into v_done.over, v_done.more from unnest(v_lanes) with ordinality l;
  select array_agg(l.id order by l.ordinality, j.o), array_agg(v_seqs[j.at] order by l.ordinality, j.o)
  into v_done.of, v_done.seqs
  from (select k.id, k.ordinality, (sum(n) over (order by k.ordinality) - n)::integer as before
        from unnest(v_lanes) with ordinality k cross join lateral (select v_read[k.ordinality] as n) h
        where k.costed) l
  cross join lateral (select o, l.before + o as at from generate_series(1, v_done.take[l.ordinality]) o) j;
  return v_done;
end $$;
