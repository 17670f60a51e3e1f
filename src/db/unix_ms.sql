-- Returns a time in ms since 1970. Clients read times in this form, because the text form depends on the DateStyle of
-- the role that connects, and not all styles can be parsed.
create or replace function engine.unix_ms(p_at timestamptz) returns float8 language sql stable as $$
  select (extract(epoch from p_at) * 1000)::float8
$$;
