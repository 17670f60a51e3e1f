-- Renews the time at which a process began the epoch $1, if that epoch still counts: for 10 s from now no other process
-- takes it over (engine.replace_redis_epoch). Returns no row when another epoch counts.
update sluice.shared set at = sluice.now() where epoch = $1 returning 1
