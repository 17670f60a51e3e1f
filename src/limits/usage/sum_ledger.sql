-- Sums new ledger rows into sluice.usage (engine.sum_buckets), and raises budgets that were reached
-- (engine.raise_budgets). One call reads a portion of 5,000 rows, in the order of time. Rows that were committed later
-- than newer ones are counted with the bucket's next row, or before they are deleted (engine.delete_old_ledger).
-- p_after: time of the limiter's clock to go on from, in microseconds; null: from 2 s before the newest row that
-- is counted.
-- until: where the next call goes on.
-- more: there are further rows now.
-- raised: the budgets that were reached, as JSON.
create or replace function engine.sum_ledger(p_after bigint, out until bigint, out more boolean, out raised json)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 5000;
  v_buckets bigint[];
  v_last bigint;
begin
  until := coalesce(p_after, (select max(s.at) - 2000000 from sluice.summed s), 0);
  more := false;
  if not pg_try_advisory_xact_lock(1397511523, -18) then return; end if;  -- lock: usage
  select array_agg(distinct p.bucket), max(p.at), count(*) = v_portion into v_buckets, v_last, more
  from (select l.bucket, l.at from sluice.ledger l where l.at > until order by l.at limit v_portion) p;
  if v_last is null then return; end if;
  until := least(v_last, engine.limiter_now_us());  -- grants ahead of time (engine.grant_ahead) are later
  perform engine.sum_buckets(v_buckets, until);
  raised := engine.raise_budgets(v_buckets);
end $$;
