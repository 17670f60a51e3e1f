-- Calls p_most idle workers that can begin jobs of these classes, any of them, and not the whole fleet for each job: by their
-- ids. They stay on the list: nobody waits for whoever calls, which may be a long transaction of a sender. One that takes as
-- many jobs as it wanted calls the next (claim_v1); that one is stopped or gone is seen within some 2 s (stir_v1).
create or replace function sluice.call_v1(p_classes bigint[], p_most integer) returns void language plpgsql as $$
declare
  v_classes bigint[] := p_classes;
begin
  if exists (select 1 from sluice.gate) then
    v_classes := array(select unnest(p_classes) except select unnest(sluice.held_v1(p_classes, sluice.now())));
  end if;
  perform pg_notify('sluice.wake', '@' || c.worker)
  from (select i.worker from sluice.idle i join sluice.worker w on w.id = i.worker
        where sluice.suits_v1(i, w, v_classes) order by random() limit p_most) c;
end $$;
