-- What claims leave out because they failed by it, the oldest first.
select kind, name, error, code, at from sluice.parked order by at, kind, name
