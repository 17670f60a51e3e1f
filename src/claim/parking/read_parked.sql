-- Reads what claims leave out because its data made them fail, the oldest first, without what has gone since.
-- `sluice doctor` runs it where the functions of this release may not exist.
select p.kind, p.name, p.error, p.code, extract(epoch from p.at)::float8 * 1000 as at_ms from sluice.parked p
where case p.kind when 'job' then exists (select 1 from sluice.job j where j.id = p.job and j.due_at = 'infinity')
                  when 'lane' then exists (select 1 from sluice.lane l where l.id = p.id and l.list = 1)
                  else exists (select 1 from sluice.bucket b where b.id = p.id and b.parked) end
order by p.at, p.kind, p.name
