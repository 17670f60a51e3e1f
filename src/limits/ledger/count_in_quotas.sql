-- Returns the periods of quotas after p_units were granted at p_when: they count in each period that is less than a
-- margin away. What is given back makes no room in the period before, which may count as full because nobody looked up
-- what was granted in it; nor in the next if it was granted after that, because the period after it is not known here.
-- limits/quota.ts does the same.
-- p_quota: the periods (ledger.quota).
-- p_kind, p_margin: kind and margin of each rule, in microseconds.
-- p_when: time of the store's clock, in microseconds.
-- p_units: units granted; negative: given back.
create or replace function engine.count_in_quotas(p_quota bigint[], p_kind text[], p_margin bigint[], p_when bigint,
  p_units bigint)
returns bigint[] language plpgsql immutable as $$
begin
  for i in 1 .. cardinality(p_margin) loop
    continue when p_kind[i] <> 'quota';
    if p_units > 0 and p_when >= p_quota[i][1] - p_margin[i] and p_when < p_quota[i][2] + p_margin[i] then
      p_quota[i][4] := p_quota[i][4] + p_units;
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
