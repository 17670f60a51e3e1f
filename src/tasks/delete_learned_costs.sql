-- Deletes the learned costs of routes that have not been used for 30 days. Returns true when there may be more.
create or replace function engine.delete_learned_costs() returns boolean language plpgsql as $$
declare
  v_portion constant integer := 1000;
  v_now timestamptz := sluice.now();
  v_count integer;
begin
  if not pg_try_advisory_xact_lock(1397511523, -14) then return false; end if;  -- lock: learned costs
  delete from sluice.learned where ctid = any (array(
    select ctid from sluice.learned where seen_at < v_now - interval '30 days' limit v_portion for update skip locked));
  get diagnostics v_count = row_count;
  return v_count = v_portion;
end $$;
