-- Returns an id: no event with it or a later one was emitted and deleted since, because ids begin with the emitter's
-- time, and events are kept for longer. It is also a floor for the ids of their deliveries.
create or replace function engine.fresh_id_floor() returns uuid language sql stable as
  $$ select engine.id_floor((extract(epoch from sluice.now()) * 1000)::bigint - 10000) $$;
