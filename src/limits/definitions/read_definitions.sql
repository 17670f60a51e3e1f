-- Returns the definitions in force of all limits, and of their keys that have definitions of their own, for those that
-- are shared in Redis; without what shares leave to others.
select distinct on (d.name, d.key) d.name, d.key, d.version, d.spec from sluice.limit_def d
where strpos(d.name, '/') = 0 order by d.name, d.key, d.version desc
