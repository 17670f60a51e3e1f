-- Records what is sent to the producers of calls in this transaction. Returns the calls for which no process has sent
-- it before.
-- $1 Celery's ids, $2 how far they are reported, $3 whether that is their result
with given as materialized (
  select u.id, u.reported, u.over from unnest($1::text[], $2::integer[], $3::boolean[]) u (id, reported, over)
), held as materialized (
  -- Also those that have been reported: otherwise the planner may read the index of all that are not.
  select c.id from sluice.celery_call c where c.id = any ($1::text[]) order by c.id for update
)
update sluice.celery_call c
set reported = greatest(c.reported, g.reported), replied_at = case when g.over then sluice.now() end
from given g join held h on h.id = g.id
where c.id = g.id and c.replied_at is null and (g.over or c.reported < g.reported)
returning c.id
