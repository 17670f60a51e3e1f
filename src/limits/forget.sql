-- Forgets ledger rows from before p_before (microseconds), but for each bucket's newest, which is its state; 100,000 at
-- most. What is left proves that no limit was exceeded since.
create or replace function sluice.forget_v1(p_before bigint) returns void language plpgsql as $$
begin
  delete from sluice.ledger where ctid = any (array(
    select l.ctid from sluice.ledger l
    where l.at < p_before and exists (select 1 from sluice.ledger m where m.bucket = l.bucket and m.n > l.n)
    limit 100000));
end $$;
