-- Deletes a portion of the sums of days that ended more than p_keep_ms ago, and the budgets of periods that are over.
-- p_cap: the latest time that the store's clock can show by the caller's monotonic clock, in microseconds; null:
-- unknown
-- more: there is a further portion
-- gone: how many sums were deleted
create or replace function engine.delete_old_usage(p_keep_ms bigint, p_cap bigint, out more boolean, out gone bigint)
language plpgsql set jit = off as $$
declare
  v_portion constant integer := 10000;
  v_now bigint := engine.limiter_now_us(p_cap);
begin
  gone := 0;
  if not pg_try_advisory_xact_lock(1397511523, -18) then return; end if;
  delete from sluice.budget b where b.ends < v_now - 7 * 86400000000;
  -- A day of some zone ends up to 14 hours after that of UTC began.
  delete from sluice.usage where ctid = any (array(
    select u.ctid from sluice.usage u
    where u.day < (to_timestamp((v_now - p_keep_ms * 1000) / 1e6) at time zone 'UTC')::date - 1
    order by u.day limit v_portion));
  get diagnostics gone = row_count;
  more := gone = v_portion;
end $$;
