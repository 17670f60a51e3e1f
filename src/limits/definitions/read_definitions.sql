-- Returns the definitions in force of all limits, for those that are shared in Redis; without what shares leave to
-- others.
select distinct on (d.name) d.name, d.version, d.spec from sluice.limit_def d
where strpos(d.name, '/') = 0 order by d.name, d.version desc
