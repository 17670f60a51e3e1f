-- Returns the subscriptions that get events of a type: those to it, and patterns, which have no type. One scan of an
-- index.
create or replace function engine.find_subscriptions(p_type text) returns setof sluice.subscription
language sql stable as $$
  select * from sluice.subscription s
  where coalesce(s.type, '') = any (array[p_type, '']) and (s.regex is null or p_type ~ s.regex)
$$;
