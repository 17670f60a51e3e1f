-- Returns the types of events that are defined, subscribed to or kept: publishers with their schemas, subscribers, and
-- the newest event with the number of subscriptions that it was delivered to.
with kind as materialized (
  select p.type from sluice.publisher p
  union select s.type from sluice.subscription s where s.type is not null
  union select t from engine.list_emitted() t
), from_of as (
  select p.type, json_agg(json_build_object('service', p.service, 'version', p.version,
    'description', p.description, 'schema', p.schema) order by p.service) as publishers
  from sluice.publisher p group by p.type
), to_of as (
  select x.type, json_agg(json_build_object('service', x.service, 'handler', x.handler, 'pattern', x.pattern)
    order by x.service, x.handler) as subscribers
  from (
    select s.type, s.service, s.handler, s.pattern from sluice.subscription s where s.type is not null
    union all
    select k.type, s.service, s.handler, s.pattern from sluice.subscription s join kind k on k.type ~ s.regex) x
  group by x.type
)
select k.type, n.at as last_at, n.routed, coalesce(f.publishers, '[]') as publishers,
  coalesce(t.subscribers, '[]') as subscribers
from kind k left join from_of f on f.type = k.type left join to_of t on t.type = k.type
left join lateral (
  select e.at, e.routed from sluice.emitted e where e.type = k.type order by e.at desc, e.id desc limit 1) n on true
order by k.type
