-- Returns how many units of a bucket may still be given back, at most: those granted since p_since, and those granted
-- to takes within the last minute. Further grants of attempts count as well, because the ledger does not show which job
-- they belong to. It looks back as far as `engine.refund_units` does.
-- p_since: when the oldest claim began that has running jobs in this bucket, in microseconds; null: no job runs
create or replace function engine.count_refundable_units(p_bucket bigint, p_since bigint, p_now bigint) returns bigint
language plpgsql stable as $$
begin
  return (
    select coalesce(sum(g.units), 0) from (
      select sum(l.units) as units from (
        select claim, units from sluice.ledger
        where bucket = p_bucket and at >= least(p_since, p_now - 60000000) and claim is not null
          and (at >= p_since or get_byte(uuid_send(claim), 6) >> 4 = 4)
        order by at desc, n desc limit 1000) l
      group by l.claim) g where g.units > 0);
end $$;
