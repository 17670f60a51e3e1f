-- Forgets ledger rows older than p_keep_days, but for each bucket's newest, which is its state. What is left proves that
-- no limit was exceeded since. Rows stay for as long as a rule of their limit looks back. Looks at one portion, after p_after (the answer of the call before; 0: from the oldest);
-- returns how far it came, null at the end.
create or replace function sluice.forget_v1(p_keep_days integer, p_after bigint) returns bigint language plpgsql
  set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 20000;
  v_now bigint := sluice.now_us();
  v_before bigint := v_now - p_keep_days * 86400000000;
  v_long boolean := exists (select 1 from sluice.limit_def d, unnest(d.span) s where s > p_keep_days * 86400000000);
  v_rows tid[];
  v_count integer;
  v_last bigint;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return null; end if;
  select array_agg(l.ctid) filter (where exists (select 1 from sluice.ledger m where m.bucket = l.bucket and (m.at, m.n) > (l.at, l.n))
           and not (v_long and exists (
             select 1 from sluice.bucket b join sluice.limit_def d on d.name = b.name cross join lateral unnest(d.span) s
             where b.id = l.bucket and l.at > v_now - s))),
         count(*), max(l.at)
  into v_rows, v_count, v_last
  from (select ctid, bucket, n, at from sluice.ledger where at > p_after and at < v_before order by at limit v_portion) l;
  delete from sluice.ledger where ctid = any (v_rows);
  return case when v_count = v_portion then v_last end;
end $$;
