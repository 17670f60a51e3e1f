-- Records that jobs of shares were denied, so that engine.share_lent_from stops lending what belongs to those shares.
-- The record is a ledger row of the share's bucket with the cause `denied` and no units; it is written at most four
-- times in lend_us. The caller has locked the buckets.
-- p_denied: buckets that denied jobs: the limit's own, or the share's, which is just as full if only its jobs used the
-- limit.
-- p_uses: buckets that those jobs need, pair by pair with p_denied.
create or replace function engine.record_denied_shares(p_denied bigint[], p_uses bigint[], p_now bigint) returns void
language plpgsql as $$
declare
  v_shares bigint[];
begin
  if not exists (select 1 from sluice.limit_def d where d.lend_us is not null) then return; end if;
  v_shares := array(
    select distinct s.id from unnest(p_denied, p_uses) u (denied, used)
    join sluice.bucket s on s.id = u.used and s.name ~ '/.'
    join sluice.bucket b on b.id = u.denied and b.name in (s.name, split_part(s.name, '/', 1)) and b.key = s.key
    cross join lateral (select d.lend_us
      from sluice.limit_def d where d.name = split_part(s.name, '/', 1) || '/' order by d.version desc limit 1) o
    where not exists (
      select 1 from (select l.at, l.cause
        from sluice.ledger l where l.bucket = s.id order by l.at desc, l.n desc limit 1) l
      where l.cause = 'denied' and l.at > p_now - o.lend_us / 4));
  if v_shares = '{}' then return; end if;
  perform engine.append_ledger(engine.recorded_room(v_shares, p_now), p_cause => 'denied');
end $$;
