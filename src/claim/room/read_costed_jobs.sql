-- Reads the next jobs of lanes whose jobs have costs, up to p_each jobs of each lane, for `engine.divide_by_turns`.
-- p_most: the capacity of each bucket of p_buckets: more than that it never grants.
-- p_now: microseconds of the limiter clock.
-- n: the number of jobs read of each lane; null: the lane's jobs have no costs.
-- seqs, dead, costs: in the order of lanes and jobs.
-- dead: the job costs more than a bucket can ever grant.
-- costs: what each job takes of its lane's buckets, and then its turn; -1: it is dead, or too late to begin.
create or replace function engine.read_costed_jobs(
  p_lane sluice.lane[], p_buckets bigint[], p_most bigint[], p_each integer, p_now bigint,
  out n bigint[], out seqs bigint[], out dead boolean[], out costs integer[])
language plpgsql as $$
declare
  v_at timestamptz := engine.store_time(p_now);
begin
  with job as materialized (
    select l.ordinality as lane, j.seq, j.costs, j.late, d.dead
    from unnest(p_lane) with ordinality l cross join lateral (
      select o.seq, o.costs, (o.expires_at <= v_at) is true as late from sluice.job o
      where o.lane = l.id and o.seq >= l.bound and o.claim is null and o.due_at is null
        and case when o.xmax = '0' then true else engine.try_lock_job(o.ctid) end order by o.seq limit p_each) j
    cross join lateral (
      select not j.late and exists (select 1 from unnest(l.buckets) with ordinality b (id, o)
                                    where j.costs[b.o] > p_most[array_position(p_buckets, b.id)]) as dead) d
    where l.costed
  )
  select (select array_agg(case when l.costed then coalesce(k.n, 0) end order by l.ordinality)
          from unnest(p_lane) with ordinality l
          left join (select lane, count(*) as n from job group by lane) k on k.lane = l.ordinality),
         (select array_agg(j.seq order by j.lane, j.seq) from job j),
         (select array_agg(j.dead order by j.lane, j.seq) from job j),
         (select array_agg(case when (j.late or j.dead) and u.o = cardinality(j.costs) then -1 else u.cost end
                           order by j.lane, j.seq, u.o)
          from job j cross join lateral unnest(j.costs) with ordinality u (cost, o))
  into n, seqs, dead, costs;
end $$;
