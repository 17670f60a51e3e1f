-- Returns those of these jobs that another transaction has locked, without waiting for it.
-- $1: the ids of the jobs
with free as materialized (
  select j.id from sluice.job j where j.id = any ($1::uuid[]) for update skip locked
)
select j.id from sluice.job j where j.id = any ($1::uuid[]) and j.id not in (select f.id from free f)
