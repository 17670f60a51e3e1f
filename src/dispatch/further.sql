-- One further grant for a running attempt, if the job is still its own. p_unused: a grant of this attempt under which
-- nothing was sent (null: none); it is given back first. p_cap: as for a claim. Answers granted, how long to wait before
-- it is worth asking again, and lost (the job was rescued or cancelled: no more calls).
create or replace function sluice.further_v1(p_grant uuid, p_job uuid, p_claim uuid, p_takes text[], p_unused uuid, p_cap bigint,
  out granted boolean, out wait_us bigint, out lost boolean) language plpgsql as $$
declare
  v_buckets bigint[] := array(select distinct sluice.hash64(u) from unnest(p_takes) u order by 1);
begin
  lost := not exists (select 1 from sluice.job j where j.id = p_job and j.claim = p_claim);
  granted := false;
  if lost then return; end if;
  if p_unused is not null then
    perform sluice.lock_v1(v_buckets);
    perform sluice.refund_v1(b, p_unused, 1) from unnest(v_buckets) b;
  end if;
  select t.granted, t.wait_us into granted, wait_us
  from sluice.take_v1(p_grant, v_buckets, p_cap) t;
end $$;
