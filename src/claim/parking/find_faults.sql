-- Returns those of p_ids that make a claim fail on their own, with the error of each. It searches by halves, so two
-- that fail only together are not found.
-- p_rehearsal: the claim that is repeated, and rolled back
-- p_of: what p_ids are: bucket, lane or job (by seq)
create or replace function engine.find_faults(p_rehearsal engine.rehearsal, p_of text, p_ids bigint[])
returns setof engine.fault language plpgsql as $$
declare
  v_half integer := cardinality(p_ids) / 2;
  v_fault engine.fault;
begin
  if p_ids = '{}' then return; end if;
  v_fault := engine.rehearse_claim(p_rehearsal, p_of, p_ids);
  if v_fault is null then return; end if;
  if v_half = 0 then
    v_fault.id := p_ids[1];
    return next v_fault;
    return;
  end if;
  return query select * from engine.find_faults(p_rehearsal, p_of, p_ids[:v_half]);
  return query select * from engine.find_faults(p_rehearsal, p_of, p_ids[v_half + 1:]);
end $$;
