-- Takes jobs that a claim met and must not start out of their lanes: those that have expired, and those that cost more
-- than one of their limits can grant at once. So the jobs behind them pass, and the next round ends them
-- (`engine.expire_overdue_jobs`). It leaves out rows that other transactions have locked.
-- p_at: what the store's clock shows
create or replace function engine.set_aside_jobs(p_ids uuid[], p_at timestamptz) returns void language plpgsql as $$
begin
  update sluice.job set due_at = 'infinity',
    delay_reason = case when expires_at <= p_at then 'expired' else 'too-dear' end where id = any (array(
    select id from sluice.job where id = any (p_ids) and claim is null and due_at is null for update skip locked));
end $$;
