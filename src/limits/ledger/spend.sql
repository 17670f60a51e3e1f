-- The periods of quotas after p_units more (or less) were granted at p_when: they count in each period that is less
-- than a margin away. One after the next is not known here, so what is given back there makes no room in the next.
-- p_margin: of each rule. limits/quota.ts is the same.
create or replace function engine.spend(p_quota bigint[], p_kind text[], p_margin bigint[], p_when bigint,
  p_units bigint)
returns bigint[] language plpgsql immutable as $$
begin
  if p_quota is null then return null; end if;
  for i in 1 .. cardinality(p_margin) loop
    continue when p_kind[i] <> 'quota';
    if p_when >= p_quota[i][1] - p_margin[i] and p_when < p_quota[i][2] + p_margin[i] then
      p_quota[i][4] := greatest(0, p_quota[i][4] + p_units);
    end if;
    if p_when >= p_quota[i][2] - p_margin[i] and p_when < p_quota[i][3] + p_margin[i] then
      p_quota[i][5] := greatest(0, p_quota[i][5] + p_units);
    end if;
    if p_when >= p_quota[i][3] - p_margin[i] and (p_units > 0 or p_when < p_quota[i][3] + p_margin[i]) then
      p_quota[i][6] := greatest(0, p_quota[i][6] + p_units);
    end if;
  end loop;
  return p_quota;
end $$;
