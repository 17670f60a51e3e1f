-- Returns the least id of ten seconds ago. No event with this id or a later one can have been emitted and deleted
-- since, because ids begin with the emitter's time, and events are kept for longer. The ids of deliveries begin with
-- the time of their event, so it is a floor for them, too.
create or replace function engine.fresh_id_floor() returns uuid language sql stable as
  $$ select engine.id_floor((extract(epoch from sluice.now()) * 1000)::bigint - 10000) $$;
