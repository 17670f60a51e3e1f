-- Where a lane stands among those of its fair key, the smaller first: the minute since which its head waits, and an hour
-- earlier for each step of priority. All grow older alike, so the order of two never changes while they wait: nobody has
-- to compute it anew, and nothing starves. Whole minutes, so that a lane that goes on is not seated anew at each claim.
create or replace function engine.rank(p_since timestamptz, p_priority integer) returns integer language sql stable as $$
  select floor(date_part('epoch', p_since) / 60)::integer - 60 * p_priority
$$;
