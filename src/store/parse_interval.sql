-- Converts a duration from JSON (a number of seconds, or text that PostgreSQL reads as an interval) to an interval of 0
-- to 366 days. JSON null returns null; anything else raises SLUICE_BAD_DURATION.
create or replace function engine.parse_interval(p_span jsonb) returns interval language plpgsql as $$
declare
  v_span interval;
begin
  begin
    v_span := case jsonb_typeof(p_span) when 'number' then make_interval(secs => p_span::text::float8)
                                        when 'string' then (p_span #>> '{}')::interval end;
  exception when data_exception then null; -- Rejected below.
  end;
  if v_span < interval '0' or v_span > interval '366 days' or (v_span is null and jsonb_typeof(p_span) <> 'null') then
    perform engine.raise_error('SLUICE_BAD_DURATION',
      format('%s is not a duration from 0 to 366 days', left(p_span::text, 100)));
  end if;
  return v_span;
end $$;
