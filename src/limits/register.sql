-- Appends the definition that the sources of a limit give as its next version. Call under lock_v1 of all buckets.
-- p_by, p_reason: who did it, and why.
create or replace function sluice.register_v1(p_name text, p_by text, p_reason text) returns void language plpgsql as $$
declare
  v_def sluice.limit_def := sluice.reigning_v1(p_name);
begin
  v_def.version := coalesce((select max(l.version) from sluice.limit_def l where l.name = p_name), 0) + 1;
  v_def.created_at := sluice.now();
  v_def.by := p_by;
  v_def.reason := p_reason;
  insert into sluice.limit_def values (v_def.*);
end $$;
