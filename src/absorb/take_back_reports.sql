-- Takes back what absorb/report_calls.sql has recorded in this transaction of calls to whose producers it could not be
-- sent, so that it is sent later.
-- $1 Celery's ids, $2 how far they were reported before
update sluice.celery_call c set reported = u.reported, replied_at = null
from unnest($1::text[], $2::integer[]) u (id, reported) where c.id = u.id
