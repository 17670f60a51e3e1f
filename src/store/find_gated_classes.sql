-- Returns those of these classes that gates hold back at p_now.
create or replace function engine.find_gated_classes(p_classes bigint[], p_now timestamptz) returns bigint[]
language plpgsql stable as $$
declare
  v_shut sluice.gate[] := array(select g from sluice.gate g where engine.is_gate_closed(g, p_now));
begin
  if v_shut = '{}' then return '{}'; end if;
  return array(select c.id from sluice.class c where c.id = any (p_classes) and exists (
    select 1 from unnest(v_shut) g where engine.gate_applies_to(g, c.queue, c.task, p_now)));
end $$;
