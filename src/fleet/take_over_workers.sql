-- Counts up the beats of dispatchers that have jobs and have sent no beat for 4 s. So each has one heir at a time,
-- which keeps it from being given up. Returns their claims, each with the jobs that are recorded as begun.
-- $1 this worker, $2 the beginning of the names under which they have enlisted, $3 claims that were taken over
-- before: a dispatcher that was only silent then has others by now
with silent as (
  update sluice.worker w set beat = w.beat + 1 from sluice.doubt d
  where d.worker = w.id and d.beat = w.beat and d.unchanged_us >= 4000000
    and w.id <> $1
    and exists (select from unnest(w.stints) s (name) where starts_with(s.name, $2))
    and exists (select from sluice.claim c where c.worker = w.id and c.id <> all ($3::uuid[]))
  returning w.id, w.stints
)
select s.id::text as worker, c.id as claim, coalesce(c.begun, '{}')::text[] as begun,
  (select n.name from unnest(s.stints) n (name) where starts_with(n.name, $2) limit 1) as name
from silent s join sluice.claim c on c.worker = s.id and c.id <> all ($3::uuid[])
