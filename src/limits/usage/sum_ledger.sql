-- Sums new ledger rows into sluice.usage (engine.sum_buckets), and raises budgets that were reached
-- (engine.raise_budgets). One call reads a portion of 20,000 rows, in the order of time. Rows that were committed later
-- than newer ones are counted with the bucket's next row, or before they are deleted (engine.delete_old_ledger).
-- p_after: where the last call ended; null: begins at the newest row that is counted.
-- until: where the next call goes on.
-- more: there are further rows now.
-- raised: the budgets that were reached, as JSON.
create or replace function engine.sum_ledger(p_after bigint, out until bigint, out more boolean, out raised json)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 20000;
  v_overlap constant bigint := 2000000;  -- most rows that are committed late are not older
  v_buckets bigint[];
  v_rows integer;
begin
  until := coalesce(p_after, (select max(s.at) from sluice.summed s), 0);
  more := false;
  if not pg_try_advisory_xact_lock(1397511523, -18) then return; end if;
  select array_agg(distinct p.bucket), count(*), greatest(until, max(p.at)) into v_buckets, v_rows, until
  from (select l.bucket, l.at from sluice.ledger l where l.at > until - v_overlap order by l.at limit v_portion) p;
  if v_rows = 0 then return; end if;
  more := v_rows = v_portion and until > p_after;
  perform engine.sum_buckets(v_buckets, until);
  raised := engine.raise_budgets(v_buckets);
end $$;
