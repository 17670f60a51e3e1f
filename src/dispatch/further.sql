-- One further grant for a running attempt, if the job is still its own; it takes what the job costs, or p_costs (one
-- for each of p_takes). p_unused: a grant of this attempt under which nothing was sent (null: none); it is given back
-- first, as much as it took. p_cap: as for a claim. Answers granted, how long to wait before
-- it is worth asking again, lost (the job was rescued or cancelled: no more calls), and waited_us: how long it waited
-- for the buckets before it decided. shared: as of a claim.
create or replace function engine.further(p_grant uuid, p_job uuid, p_claim uuid, p_takes text[], p_unused uuid,
  p_cap bigint,
  p_costs bigint[] default null, p_back bigint[] default null,
  out granted boolean, out wait_us bigint, out lost boolean, out waited_us bigint, out shared text)
  language plpgsql as $$
declare
  v_buckets bigint[] := array(select sluice.hash64(t) from unnest(p_takes) with ordinality u (t, o) order by o);
  v_own bigint[];
  v_begun bigint := engine.limiter_us();
begin
  -- Before the buckets, as claims do.
  perform engine.same();
  shared := engine.shared();
  select j.costs into v_own from sluice.job j where j.id = p_job and j.claim = p_claim;
  lost := not found;
  granted := false;
  waited_us := 0;
  if lost then return; end if;
  v_own := coalesce(v_own[:cardinality(p_takes)], array_fill(1::bigint, array[cardinality(p_takes)]));
  perform engine.lock_to_give(v_buckets);
  waited_us := greatest(engine.limiter_us() - v_begun, 0);
  p_back := coalesce(p_back, v_own);
  if p_unused is not null then
    perform engine.refund(u.bucket, p_unused, u.units) from unnest(v_buckets, p_back) u (bucket, units);
  end if;
  select t.granted, t.wait_us into granted, wait_us
  from engine.take(p_grant, v_buckets, p_cap, coalesce(p_costs, v_own)) t;
  if p_unused is not null then perform engine.sooner(v_buckets, p_back, v_begun); end if;
end $$;
