-- Those of these classes that gates hold back now.
create or replace function sluice.held_v1(p_classes bigint[], p_now timestamptz) returns bigint[] language plpgsql stable as $$
declare
  v_shut sluice.gate[] := array(select g from sluice.gate g where sluice.shut_v1(g, p_now));
begin
  if v_shut = '{}' then return '{}'; end if;
  return array(select c.id from sluice.class c where c.id = any (p_classes) and exists (
    select 1 from unnest(v_shut) g where sluice.fits_v1(g.queues, c.queue) and sluice.fits_v1(g.tasks, c.task)));
end $$;
