-- Returns the subscriptions that get events of a type.
create or replace function engine.find_subscriptions(p_type text) returns setof sluice.subscription
language sql stable as $$
  select * from sluice.subscription s where s.type = p_type
  union all
  select * from sluice.subscription s where s.regex is not null and p_type ~ s.regex
$$;
