-- Returns the claim of each grant of a claim that has decided for several instants: the jobs of one instant are a claim
-- of their own, like any other. For the first instant it is p_claim; for the others, its id with the last byte counted
-- on.
-- p_times: the instant of each grant, ascending, in microseconds
create or replace function engine.claims_of_instants(p_claim uuid, p_times bigint[]) returns uuid[]
language plpgsql immutable as $$
declare
  v_claim uuid := p_claim;
  v_byte integer := get_byte(uuid_send(p_claim), 15);
  v_claims uuid[] := '{}';
begin
  for i in 1 .. cardinality(p_times) loop
    if p_times[i] > p_times[i - 1] then
      v_byte := (v_byte + 1) % 256;
      v_claim := encode(set_byte(uuid_send(p_claim), 15, v_byte), 'hex')::uuid;
    end if;
    v_claims := v_claims || v_claim;
  end loop;
  return v_claims;
end $$;
