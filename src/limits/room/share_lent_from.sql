-- Returns the time from which a share's part is lent to others: lend_us after the share's last grant, or, where a job
-- of the share was denied since (see `engine.record_denied_shares`), lend_us after that job can be looked at again. 0:
-- the share was never used. A charge without a claim (`engine.charge_overrun`) does not count: it may follow a denial,
-- and the job that was denied still waits.
-- p_bucket: the bucket of what the share leaves to others.
-- p_def: its definition.
create or replace function engine.share_lent_from(p_bucket bigint, p_def sluice.limit_def) returns bigint
language plpgsql stable as $$
declare
  v_key text := (select case when b.key = '' then '' else ':' || b.key end from sluice.bucket b where b.id = p_bucket);
  v_share bigint := sluice.hash64(p_def.name || (p_def.spec ->> 'lends') || v_key);
  v_last record;
begin
  select l.at, l.cause = 'denied' is true as denied into v_last
  from (select * from sluice.ledger o where o.bucket = v_share order by o.at desc, o.n desc limit 100) l
  where l.claim is not null and l.units > 0 or l.cause = 'denied' limit 1;
  if v_last.denied then
    return p_def.lend_us + greatest(v_last.at, (
      select max(w.due)
        from sluice.list w where w.id in (v_share, sluice.hash64(rtrim(p_def.name, '/') || v_key)) and w.id <> 0));
  end if;
  -- Rows of jobs that ended since may have pushed the last grant beyond the 100 rows: then it was made before them.
  return coalesce(p_def.lend_us + coalesce(v_last.at, (
    select o.at from sluice.ledger o where o.bucket = v_share order by o.at desc, o.n desc offset 99 limit 1)), 0);
end $$;
