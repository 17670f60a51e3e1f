-- One further grant for a running attempt, if the job is still its own. Answers granted, how long to wait before it is
-- worth asking again, and lost (the job was rescued or cancelled: no more calls).
create or replace function sluice.further_v1(p_grant uuid, p_job uuid, p_claim uuid, p_takes text[],
  out granted boolean, out wait_us bigint, out lost boolean) language plpgsql as $$
begin
  lost := not exists (select 1 from sluice.job j where j.id = p_job and j.claim = p_claim);
  granted := false;
  if lost then return; end if;
  select t.granted, t.wait_us into granted, wait_us
  from sluice.take_v1(p_grant, array(select distinct sluice.hash64(u) from unnest(p_takes) u order by 1)) t;
end $$;
