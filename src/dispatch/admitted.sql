-- What a worker must know of a job's admission: 2 nobody has looked at its task's code, 1 it has met no rules, 0 it has,
-- and the rules' own record where they gave it other keys.
create or replace function sluice.admitted_v1(p_raw boolean, p_ruled jsonb) returns jsonb language sql immutable as $$
  select case when p_raw then '2'::jsonb when p_ruled is null then '1' when p_ruled @? '$[*].keys' then p_ruled else '0' end
$$;
