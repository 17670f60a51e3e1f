-- How many units of a bucket may still be given back, at most: what was granted since p_since, when the oldest claim began
-- whose jobs run with it (null: none does), for attempts take further grants, of which it is not known whose they are; and
-- what takes outside of jobs were granted within the last minute. As far back as refund looks.
create or replace function engine.recoverable(p_bucket bigint, p_since bigint, p_now bigint) returns bigint language plpgsql stable as $$
begin
  return (
    select coalesce(sum(g.units), 0) from (
      select sum(l.units) as units from (
        select claim, units from sluice.ledger
        where bucket = p_bucket and at >= least(p_since, p_now - 60000000) and claim is not null
          and (at >= p_since or get_byte(uuid_send(claim), 6) >> 4 = 4) order by at desc, n desc limit 1000) l
      group by l.claim) g where g.units > 0);
end $$;
