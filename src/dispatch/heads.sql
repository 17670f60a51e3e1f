-- The next jobs of lanes whose jobs have costs, up to p_each of each, as share_costs wants them: n, how many of each lane
-- (0 of others); costs, of each job one number for each use of its lane (p_which: the cost it means, 0: one place) and its
-- turn. A job that is too late to begin takes nothing; nor does one that is dead: it costs more than a bucket can ever
-- grant (p_most, by position in p_buckets). seqs and dead are in the order of the lanes.
create or replace function engine.heads(
  p_lane sluice.lane[], p_from integer[], p_which integer[], p_buckets bigint[], p_most bigint[], p_each integer, p_now bigint,
  out n bigint[], out seqs bigint[], out dead boolean[], out costs integer[])
language plpgsql as $$
declare
  v_at timestamptz := engine.wall(p_now);
begin
  with job as materialized (
    select l.ordinality as lane, j.seq, j.costs, j.late, j.late or d.dead as idle, d.dead
    from unnest(p_lane) with ordinality l cross join lateral (
      select o.seq, o.costs, (o.expires_at <= v_at) is true as late from sluice.job o
      where o.lane = l.id and o.seq >= l.bound and o.claim is null and o.due_at is null
        and case when o.xmax = '0' then true else engine.lock_job(o.ctid) end order by o.seq limit p_each) j
    cross join lateral (
      select not j.late and exists (select 1 from unnest(l.buckets) with ordinality b (id, o)
                                    where j.costs[b.o] > p_most[array_position(p_buckets, b.id)]) as dead) d
    where l.costed
  )
  select (select array_agg(coalesce(k.n, 0) order by l.ordinality)
          from unnest(p_lane) with ordinality l left join (select lane, count(*) as n from job group by lane) k on k.lane = l.ordinality),
         (select array_agg(j.seq order by j.lane, j.seq) from job j),
         (select array_agg(j.dead order by j.lane, j.seq) from job j),
         (select array_agg(case when w.which is null then case when j.idle then 0 else j.costs[cardinality(j.costs)] end
                                when j.idle then -1 when w.which = 0 then 1 else j.costs[w.which] end order by j.lane, j.seq, w.o)
          from job j cross join lateral unnest(p_which[p_from[j.lane]:p_from[j.lane + 1] - 1] || null::integer) with ordinality w (which, o))
  into n, seqs, dead, costs;
end $$;
