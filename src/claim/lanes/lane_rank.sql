-- Returns the rank of a lane among the lanes of its fair key; the smaller comes first. It is the minute since which the
-- lane's head waits, 60 minutes earlier for each step of priority. All lanes grow older alike, so the order of two
-- never changes while they wait: no rank is computed again, and no lane starves. It counts whole minutes, so that a
-- lane that goes on to its next job is not seated again at each claim.
-- p_since: since when the head waits
-- p_priority: the lane's priority
create or replace function engine.lane_rank(p_since timestamptz, p_priority integer) returns integer
language sql stable as $$
  select floor(date_part('epoch', p_since) / 60)::integer - 60 * p_priority
$$;
