-- What claims leave out because they failed by it, the oldest first. Runs where this release's functions may not be, for doctor.
select kind, name, error, code, extract(epoch from at)::float8 * 1000 as at_ms from sluice.parked order by at, kind, name
