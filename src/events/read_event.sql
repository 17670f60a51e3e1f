-- Returns an event, and the job of each delivery that is known: those of all present subscriptions. $1: the event's id.
select e.type, e.at, e.event, e.routed, coalesce((
  select json_agg(json_build_object('service', d.service, 'handler', d.handler, 'job', d.id,
      'state', coalesce(j.state, h.state, f.state), 'reason', coalesce(j.reason, h.reason, f.reason),
      'attempt', coalesce(j.attempt, h.attempt, f.attempt), 'error', coalesce(j.error, h.error, f.error))
    order by d.service, d.handler)
  from (select s.service, s.handler, engine.delivery_id(e.id, s.service, s.origin) as id
        from engine.find_subscriptions(e.type) s) d
  left join lateral (
    select engine.state_of_job(j) as state, case when engine.state_of_job(j) = 'scheduled' then 'retry' end as reason,
           j.attempt, j.error
    from sluice.job j where j.id = d.id) j on true
  left join lateral (
    select h.state, h.reason, h.attempt, h.error from sluice.done h where h.id = d.id) h on true
  left join lateral (
    select f.state, f.reason, f.attempt, f.error from sluice.failed f where f.id = d.id) f on true), '[]') as deliveries
from sluice.emitted e where e.id = $1
