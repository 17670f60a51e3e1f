-- Returns for how many microseconds a bucket is held after the vendor's n-th bad answer in a row, if it states no time,
-- and how far apart its trials then are. The specification, with the reasons, is test/limits/circuit.ts.
-- p_cause: refused, credential or down.
-- p_age_us: since the first of them.
create or replace function engine.trial_interval(p_cause text, p_bucket bigint, p_n integer, p_age_us bigint)
returns bigint
language plpgsql stable as $$
declare
  v_second constant bigint := case p_cause when 'credential' then 60000000 else 1000000 end;
  v_unit constant bigint := case p_cause when 'refused' then v_second
    else v_second + (p_bucket & 255) * (v_second / 1000) end;
  v_most constant bigint := case p_cause when 'down' then 60000000 when 'credential' then 900000000 else
    greatest(1000000, least(60000000, coalesce((
      select (select min(u.span) from unnest(d.span, d.kind) u (span, kind) where u.kind <> 'concurrency')
      from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.key = b.def_key where b.id = p_bucket
      order by d.version desc limit 1), 10000000))) end;
begin
  return least(v_most, v_unit * (1 << least(p_n - 1, 10)), greatest(3 * v_unit, p_age_us / 20));
end $$;
