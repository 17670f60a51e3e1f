-- Delivers a portion of the events that were emitted at repeatable read to the subscriptions that lack them, because
-- the emitting transaction may not have seen all subscriptions. Returns how many events these were.
create or replace function engine.deliver_aged_events(p_most integer) returns integer language plpgsql as $$
declare
  v_ids uuid[] := array(select e.id from sluice.emitted e where e.aged order by e.id limit p_most
    for update skip locked);
begin
  if cardinality(v_ids) = 0 then return 0; end if;
  perform engine.deliver_events(v_ids, null, null, true, true);
  update sluice.emitted e set aged = null where e.id = any (v_ids);
  return cardinality(v_ids);
end $$;
