-- Begins the next epoch of the store, as after a restore that was noticed (engine.check_epoch): the caller knows of a
-- later epoch than the store has. Limits close for as long as they look back.
select c.n from sluice.epoch e cross join lateral engine.check_epoch(null, e.n + 1, null) c
