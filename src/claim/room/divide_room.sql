-- Divides the room of buckets among lanes in fair order: brings the lanes into the form of `engine.divide_by_turns`,
-- and reads the next jobs of lanes whose jobs have costs. It does not know how many jobs lanes without costs have.
-- p_starts: the virtual start of each lane's fair key
-- p_steps: what a unit of each lane adds to it
-- p_rooms: what a pool has available is the sum of its members' room, and decides where no job needs more than one
-- unit; its other numbers are those of one member.
-- p_horizon, p_first: as in `engine.divide_by_turns`
-- take: how many jobs each lane gives
-- blocked: the position in p_buckets of the bucket that denied each lane; 0: none did
-- of, seqs: for each job of a lane with costs: its lane and its seq
-- over: 1 for a lane with costs that has no further jobs
-- more: some lanes have more jobs than were read
create or replace function engine.divide_room(
  p_want integer, p_lane sluice.lane[], p_starts bigint[], p_steps bigint[], p_buckets bigint[],
  p_rooms engine.room[], p_horizon bigint, p_at timestamptz, p_first integer[],
  out take integer[], out blocked integer[], out of bigint[], out seqs bigint[], out over integer[], out more boolean)
language plpgsql as $$
declare
  -- Enough, unless few lanes take all.
  v_each constant integer := 2 * p_want / cardinality(p_lane) + 1;
  v_fairs bigint[];
  v_lane sluice.lane;
  v_bucket bigint;
  v_uses integer[] := '{}';
  v_from integer[] := '{1}';
  v_at integer[] := array_fill(0, array[cardinality(p_lane)]);
  v_next integer := 1;
  v_n bigint[]; v_fair integer[]; v_starts bigint[]; v_costed boolean;
  v_units bigint[]; v_places bigint[]; v_most bigint[];
  v_read bigint[]; v_whole boolean[]; v_seqs bigint[]; v_costs integer[];
begin
  select array_agg(s.fair order by s.start, s.o), array_agg(s.start order by s.start) into v_fairs, v_starts
  from (select l.fair, max(p_starts[l.ordinality]) as start, min(l.ordinality) as o
        from unnest(p_lane) with ordinality l group by 1) s;
  foreach v_lane in array p_lane loop
    foreach v_bucket in array v_lane.buckets loop v_uses := v_uses || array_position(p_buckets, v_bucket); end loop;
    v_from := v_from || cardinality(v_uses) + 1;
  end loop;
  select array_fill(p_want::bigint, array[cardinality(p_lane)]), bool_or(l.costed),
         array_agg(array_position(v_fairs, l.fair) order by l.ordinality)
  into v_n, v_costed, v_fair from unnest(p_lane) with ordinality l;
  more := false;
  select array_agg(case when v_costed then r.units else r.avail end order by r.ord),
         array_agg(case when v_costed then r.places else r.avail end order by r.ord), array_agg(r.most order by r.ord)
  into v_units, v_places, v_most from unnest(p_rooms) r;
  if v_costed then
    select h.n, h.whole, h.seqs, h.costs into v_read, v_whole, v_seqs, v_costs
    from engine.read_costed_jobs(p_lane, p_buckets, v_most, v_each, p_at) h;
    for i in 1 .. cardinality(p_lane) loop
      continue when v_read[i] is null;
      v_at[i] := v_next;
      v_next := v_next + v_read[i] * (v_from[i + 1] - v_from[i] + 1);
      v_n[i] := v_read[i];
    end loop;
  end if;
  select s.take, s.blocked into take, blocked
  from engine.divide_by_turns(p_want, v_n, v_starts, p_steps, v_fair, v_from, v_uses, v_units, v_places, p_horizon,
                              v_at, v_costs, p_first) s;
  if not v_costed then return; end if;
  select array_agg(l.costed and take[l.ordinality] = v_read[l.ordinality] and v_whole[l.ordinality]
                   order by l.ordinality)::integer[],
         bool_or(l.costed and take[l.ordinality] = v_read[l.ordinality] and not v_whole[l.ordinality])
  into over, more from unnest(p_lane) with ordinality l;
  select array_agg(l.id order by l.ordinality, j.o), array_agg(v_seqs[j.at] order by l.ordinality, j.o)
  into of, seqs
  from (select k.id, k.ordinality, (sum(n) over (order by k.ordinality) - n)::integer as before
        from unnest(p_lane) with ordinality k cross join lateral (select v_read[k.ordinality] as n) h
        where k.costed) l
  cross join lateral (select o, l.before + o as at from generate_series(1, take[l.ordinality]) o) j;
end $$;
