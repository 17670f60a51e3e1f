-- Formats a time for messages: 2026-11-21T16:00:00Z, rounded up to the second.
create or replace function engine.format_utc(p_at timestamptz) returns text language sql stable as $$
  select to_char(date_trunc('second', p_at + interval '999999 us') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
$$;
