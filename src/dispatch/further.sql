-- One further grant for a running attempt, if the job is still its own. p_unused: a grant of this attempt under which
-- nothing was sent (null: none); it is given back first. p_cap: as for a claim. Answers granted, how long to wait before
-- it is worth asking again, lost (the job was rescued or cancelled: no more calls), and waited_us: how long it waited
-- for the buckets before it decided.
create or replace function sluice.further_v1(p_grant uuid, p_job uuid, p_claim uuid, p_takes text[], p_unused uuid, p_cap bigint,
  out granted boolean, out wait_us bigint, out lost boolean, out waited_us bigint) language plpgsql as $$
declare
  v_buckets bigint[] := array(select distinct sluice.hash64(u) from unnest(p_takes) u order by 1);
  v_begun bigint := sluice.limiter_us();
begin
  lost := not exists (select 1 from sluice.job j where j.id = p_job and j.claim = p_claim);
  granted := false;
  waited_us := 0;
  if lost then return; end if;
  perform sluice.lock_v1(v_buckets);
  waited_us := greatest(sluice.limiter_us() - v_begun, 0);
  if p_unused is not null then
    perform sluice.refund_v1(b, p_unused, 1) from unnest(v_buckets) b;
  end if;
  select t.granted, t.wait_us into granted, wait_us
  from sluice.take_v1(p_grant, v_buckets, p_cap) t;
  if p_unused is not null then perform sluice.sooner_v1(v_buckets, array_fill(1, array[cardinality(v_buckets)]), v_begun); end if;
end $$;
