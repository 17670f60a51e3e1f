-- Returns whether the bucket has granted units ahead of time, the last of them for this time of its newest row
-- (engine.grant_ahead).
create or replace function engine.is_granted_until(p_bucket bigint, p_at bigint) returns boolean
language plpgsql stable as $$
begin
  return exists (select 1 from sluice.ledger l where l.bucket = p_bucket and l.at = p_at and l.earlier is not null);
end $$;
