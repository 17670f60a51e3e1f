-- Puts a definition of a limit in force as its next version, unless it is in force already. Returns whether it was not.
-- p_drain .. p_span: one element per rule. p_grant_us: life of a grant. Call under lock_v1 of all buckets.
create or replace function sluice.register_v1(
  p_name text, p_spec jsonb, p_drain bigint[], p_weight bigint[], p_room bigint[], p_slot bigint[], p_span bigint[], p_grant_us bigint)
returns boolean language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  with newest as (
    select l.version, l.spec from sluice.limit_def l where l.name = p_name order by l.version desc limit 1
  )
  insert into sluice.limit_def (name, version, spec, drain, weight, room, slot, span, grant_us, created_at, label, members)
  select p_name, coalesce((select version from newest), 0) + 1, p_spec, p_drain, p_weight, p_room, p_slot, p_span, p_grant_us, v_now,
         p_spec ->> 'label', (select array_agg(m order by o) from jsonb_array_elements_text(p_spec -> 'pool') with ordinality m (m, o))
  where not exists (select 1 from newest where spec = p_spec);
  return found;
end $$;
