-- Ends what a grant outside of jobs holds: its place, if it has one, and with p_unused its units too, as if they had
-- not been granted. A second time it does nothing. Call under lock.
create or replace function engine.untake(p_grant uuid, p_bucket bigint, p_unused boolean, p_now bigint) returns void
language plpgsql as $$
declare
  v_units bigint := 0;
begin
  delete from sluice.lease where id = p_grant and bucket = p_bucket;
  if found then
    perform engine.release(array[p_bucket], array[1]);
    v_units := 1;
  end if;
  if p_unused then
    v_units := coalesce((select sum(t.units) from (
      select l.claim, l.units from sluice.ledger l where l.bucket = p_bucket order by l.at desc, l.n desc limit 1000) t
        where t.claim = p_grant), 0);
    if v_units > 0 then perform engine.refund(p_bucket, p_grant, v_units); end if;
  end if;
  if v_units > 0 then perform engine.sooner(array[p_bucket], array[v_units], p_now); end if;
end $$;
