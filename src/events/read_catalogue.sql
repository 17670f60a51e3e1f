-- Returns the types of events that are defined, subscribed to or kept: publishers with their schemas, subscribers, and
-- the newest event with the number of subscriptions that it was delivered to.
with kind as (
  select p.type from sluice.publisher p
  union select s.type from sluice.subscription s where s.type is not null
  union select t from engine.list_emitted() t
)
select k.type, n.at as last_at, n.routed,
  coalesce((select json_agg(json_build_object('service', p.service, 'version', p.version,
      'description', p.description, 'schema', p.schema) order by p.service)
    from sluice.publisher p where p.type = k.type), '[]') as publishers,
  coalesce((select json_agg(json_build_object('service', s.service, 'handler', s.handler, 'pattern', s.pattern)
      order by s.service, s.handler)
    from engine.find_subscriptions(k.type) s), '[]') as subscribers
from kind k
left join lateral (
  select e.at, e.routed from sluice.emitted e where e.type = k.type order by e.at desc, e.id desc limit 1) n on true
order by k.type
