-- A time in ms since 1970. What clients read is given so: as text a time depends on the DateStyle of the role that connects,
-- and not all of those can be read.
create or replace function engine.unix_ms(p_at timestamptz) returns float8 language sql stable as $$
  select (extract(epoch from p_at) * 1000)::float8
$$;
