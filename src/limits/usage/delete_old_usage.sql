-- Deletes a portion of the sums of days that ended more than p_keep_ms ago, and the budgets of periods that are over.
-- Both go by the store's clock, whose steps make none older (engine.store_time_ago).
-- more: there is a further portion
-- gone: how many sums were deleted
create or replace function engine.delete_old_usage(p_keep_ms bigint, p_cap bigint, out more boolean, out gone bigint)
language plpgsql set jit = off as $$
declare
  v_portion constant integer := 10000;
  v_before date := (engine.store_time_ago(p_keep_ms, p_cap) at time zone 'UTC')::date;
  v_over timestamptz := engine.store_time_ago(7 * 86400000, p_cap);
begin
  gone := 0;
  if not pg_try_advisory_xact_lock(1397511523, -18) then return; end if;  -- lock: usage
  delete from sluice.budget b where to_timestamp(b.ends / 1e6) < v_over;
  -- A day of some zone ends up to 14 hours after that of UTC began.
  delete from sluice.usage where ctid = any (array(
    select u.ctid from sluice.usage u where u.day < v_before - 1 order by u.day limit v_portion));
  get diagnostics gone = row_count;
  more := gone = v_portion;
end $$;
