-- Returns a bucket's newest row (p_row) with the debts, parts and periods that it has under a changed definition: as if
-- the new rules had been in force for as long as they look back (span), from what was granted and not given back. As
-- `rebuild` in test/limits/rebuild.ts; for a rate or a pace engine.rebuild_rate_debt. A rule that the row's definition
-- had too keeps what the row has of it, whose grants may be many. Running jobs keep their places if every definition
-- since p_row counted them.
create or replace function engine.rebuild_bucket_state(p_row sluice.ledger, p_def sluice.limit_def)
returns sluice.ledger language plpgsql stable as $$
declare
  v_running bigint := 0;
  v_kept constant integer[] := engine.find_kept_rules(p_def, p_row.version);
  v_parts bigint[];
  v_units bigint[];
  v_new sluice.ledger := p_row;
begin
  v_new.version := p_def.version; v_new.debt := null; v_new.parts := null; v_new.quota := null;
  if not exists (
    select 1 from sluice.limit_def d
    where d.name = p_def.name and d.key in ('', p_def.key) and d.version >= p_row.version
      and 'concurrency' <> all (d.kind)) then
    select u.debt into v_running from sluice.limit_def d, unnest(p_row.debt, d.kind) u (debt, kind)
    where d.name = p_def.name and d.version = p_row.version and u.kind = 'concurrency';
  end if;
  for i in 1 .. cardinality(p_def.kind) loop
    v_new.debt[i] := 0;  -- for a window or a quota engine.bucket_room reads its parts or periods
    if p_def.kind[i] = 'concurrency' then
      v_new.debt[i] := coalesce(v_running, 0);
    elsif v_kept[i] is not null then
      v_new.debt[i] := p_row.debt[v_kept[i]];
    elsif p_def.kind[i] in ('rate', 'pace') then
      v_new.debt[i] := engine.rebuild_rate_debt(p_row, p_def, i);
    end if;
  end loop;
  if 'window' = any (p_def.kind) then
    v_new.parts := engine.advance_windows(null, p_def.kind, p_def.part_us, p_row.at, p_row.at);
    for i in 1 .. cardinality(p_def.part_us) loop
      continue when p_def.kind[i] <> 'window';
      for k in 1 .. case when v_kept[i] is not null then 61 else 0 end loop
        v_new.parts[i][k] := p_row.parts[v_kept[i]][k]; end loop;
      continue when v_kept[i] is not null;
      select array_agg(s.part), array_agg(s.units) into v_parts, v_units from (
        select p_row.at / p_def.part_us[i] - g.at / p_def.part_us[i] as part, sum(g.units) as units
        from engine.kept_grants(p_row.bucket, p_row.at - p_def.span[i]) g group by 1) s;
      for k in 1 .. coalesce(cardinality(v_parts), 0) loop
        if v_parts[k] <= 60 then v_new.parts[i][v_parts[k]::integer + 1] := least(v_units[k], 2147483647); end if;
      end loop;
    end loop;
  end if;
  if 'quota' = any (p_def.kind) then
    v_new.quota := engine.recount_quota_periods(
      p_row.bucket, p_row.at - engine.clock_offset_at(p_row.at), p_def, p_row.quota, v_kept);
  end if;
  return v_new;
end $$;
