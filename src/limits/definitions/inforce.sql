-- The definitions in force of limits that others may share; not of what shares leave to others.
select distinct on (d.name) d.name, d.version, d.spec from sluice.limit_def d
where strpos(d.name, '/') = 0 order by d.name, d.version desc
