-- Shares out what buckets have free among lanes in fair order: share, or, where some lanes have jobs with costs or units that are
-- kept for them (p_first), share_costs over the next jobs of the former, up to p_each of each. Concurrency counts jobs, other rules
-- units: a bucket with both stands there twice (p_places: places free). How many jobs lanes without costs have is not known here.
-- Results for each job that was given from a lane with costs: of (its lane), seqs (its seq), dead (it must not run: heads). over is 1
-- for a lane that has no further jobs. more is true when some lanes have more jobs than were read.
create or replace function engine.portion(
  p_want integer, p_lane sluice.lane[], p_fairs bigint[], p_starts bigint[], p_buckets bigint[], p_avail bigint[],
  p_units bigint[], p_places bigint[], p_most bigint[], p_horizon bigint, p_each integer, p_now bigint, p_first integer[],
  out take integer[], out blocked integer[],
  out of bigint[], out seqs bigint[], out dead boolean[], out over integer[], out more boolean)
language plpgsql as $$
declare
  v_count integer := cardinality(p_buckets);
  v_uses integer[] := '{}';
  v_which integer[] := '{}';
  v_from integer[] := '{1}';
  v_at integer[] := '{}';
  v_next integer := 1;
  v_b integer;
  v_n bigint[]; v_step bigint[]; v_fair integer[]; v_starts bigint[];
  v_heads record;
begin
  for i in 1 .. cardinality(p_lane) loop
    for u in 1 .. cardinality(p_lane[i].buckets) loop
      v_b := array_position(p_buckets, p_lane[i].buckets[u]);
      v_uses := v_uses || v_b;
      continue when p_each is null;
      v_which := v_which || u;
      if p_places[v_b] < 2147483647 then
        v_uses := v_uses || v_count + v_b;
        v_which := v_which || 0;
      end if;
    end loop;
    v_from := v_from || cardinality(v_uses) + 1;
  end loop;
  select array_fill(p_want::bigint, array[cardinality(p_lane)]), array_agg(1000000 / greatest(1, l.weight) order by l.ordinality),
         array_agg(array_position(p_fairs, l.fair) order by l.ordinality)
  into v_n, v_step, v_fair from unnest(p_lane) with ordinality l;
  v_starts := array(select s.start from (select l.fair, max(p_starts[l.ordinality]) as start from unnest(p_lane) with ordinality l group by 1) s
                    order by array_position(p_fairs, s.fair));
  more := false;
  if p_each is null then
    select s.take, s.blocked into take, blocked
    from engine.share(p_want, v_n, v_starts, v_step, v_fair, v_from, v_uses, p_avail, p_horizon) s;
    return;
  end if;
  select * into v_heads from engine.heads(p_lane, v_from, v_which, p_buckets, p_most, p_each, p_now);
  for i in 1 .. cardinality(p_lane) loop
    v_at[i] := 0;
    continue when not p_lane[i].costed;
    v_at[i] := v_next;
    v_next := v_next + v_heads.n[i] * (v_from[i + 1] - v_from[i] + 1);
    v_n[i] := v_heads.n[i];
  end loop;
  select s.take, s.blocked into take, blocked
  from engine.share_costs(p_want, v_n, v_starts, v_step, v_fair, v_from, v_uses, p_units || p_places, p_horizon, v_at, v_heads.costs, p_first) s;
  blocked := array(select case when b > v_count then b - v_count else b end from unnest(blocked) with ordinality u (b, o) order by o);
  select array_agg(l.costed and take[l.ordinality] = v_n[l.ordinality] and v_n[l.ordinality] < p_each order by l.ordinality)::integer[],
         bool_or(l.costed and take[l.ordinality] = p_each)
  into over, more from unnest(p_lane) with ordinality l;
  select array_agg(l.id order by l.ordinality, j.o), array_agg(v_heads.seqs[j.at] order by l.ordinality, j.o),
         array_agg(v_heads.dead[j.at] order by l.ordinality, j.o)
  into of, seqs, dead
  from (select k.*, (sum(v_heads.n[k.ordinality]) over (order by k.ordinality) - v_heads.n[k.ordinality])::integer as before
        from unnest(p_lane) with ordinality k) l
  cross join lateral (select o, l.before + o as at from generate_series(1, take[l.ordinality]) o) j where l.costed;
end $$;
