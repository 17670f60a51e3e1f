-- Finds jobs by the end of their id, the newest first: unfinished ones, and the last 100,000 done and failed ones.
-- $1: the last digits, without hyphens
-- $2: how many at most
select x.id, x.task, x.state from (
  (select j.id, j.task, engine.state_of_job(j) as state from sluice.job j
   where right(replace(j.id::text, '-', ''), length($1)) = $1 limit $2::integer)
  union all
  (select d.id, d.task, d.state from (select id, task, state from sluice.done order by id desc limit 100000) d
   where right(replace(d.id::text, '-', ''), length($1)) = $1)
  union all
  (select f.id, f.task, f.state from (select id, task, state from sluice.failed order by id desc limit 100000) f
   where right(replace(f.id::text, '-', ''), length($1)) = $1)) x
order by x.id desc limit $2::integer
