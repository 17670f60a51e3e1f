-- Finds jobs by the beginning of their id, the newest first.
-- $1, $2: the first and the last id
-- $3: how many at most
select x.id, x.task, x.state from (
  (select j.id, j.task, engine.state_of_job(j) as state
   from sluice.job j where j.id between $1::uuid and $2::uuid limit $3::integer)
  union all
  (select d.id, d.task, d.state from sluice.done d where d.id between $1::uuid and $2::uuid limit $3::integer)
  union all
  (select f.id, f.task, f.state from sluice.failed f where f.id between $1::uuid and $2::uuid limit $3::integer)) x
order by x.id desc limit $3::integer
