-- Reads the next jobs of lanes whose jobs have costs, for `engine.divide_by_turns`: up to p_each jobs of each lane, but
-- for those that have expired or cost more than a bucket ever grants. These it sets aside.
-- p_most: the capacity of each bucket of p_buckets: more than that it never grants.
-- p_at: what the store's clock shows
-- n: the number of jobs of each lane; null: the lane's jobs have no costs.
-- whole: the lane has no further jobs.
-- seqs, costs: in the order of lanes and jobs. What each job takes of its lane's buckets, and then its turn.
create or replace function engine.read_costed_jobs(
  p_lanes sluice.lane[], p_buckets bigint[], p_most bigint[], p_each integer, p_at timestamptz,
  out n bigint[], out whole boolean[], out seqs bigint[], out costs integer[])
language plpgsql as $$
declare
  v_aside uuid[];
begin
  with job as materialized (
    select l.ordinality as lane, j.seq, j.costs, case when j.late or exists (
      select 1 from unnest(l.buckets) with ordinality b (id, o)
      where j.costs[b.o] > p_most[array_position(p_buckets, b.id)]) then j.id end as aside
    from unnest(p_lanes) with ordinality l cross join lateral (
      select o.id, o.seq, o.costs, (o.expires_at <= p_at) is true as late from sluice.job o
      where o.lane = l.id and o.seq >= l.bound and o.claim is null and o.due_at is null
        and case when o.xmax = '0' then true else engine.try_lock_job(o.ctid) end order by o.seq limit p_each) j
    where l.costed
  ), read as (
    select array_agg(case when l.costed then coalesce(k.n, 0) end order by l.ordinality) as n,
           array_agg(coalesce(k.read, 0) < p_each order by l.ordinality) as whole
    from unnest(p_lanes) with ordinality l
    left join (select lane, count(*) as read, count(*) filter (where aside is null) as n from job group by lane) k
      on k.lane = l.ordinality
  )
  select r.n, r.whole, (select array_agg(j.seq order by j.lane, j.seq) from job j where aside is null),
         (select array_agg(u.cost order by j.lane, j.seq, u.o)
          from job j cross join lateral unnest(j.costs) with ordinality u (cost, o) where aside is null),
         (select array_agg(aside) from job where aside is not null)
  into n, whole, seqs, costs, v_aside from read r;
  if v_aside is not null then perform engine.set_aside_jobs(v_aside, p_at); end if;
end $$;
