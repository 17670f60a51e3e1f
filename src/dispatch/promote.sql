-- Scheduled jobs and backoffs that have become due go back to their place in their lane, by way of an arrival, which
-- the next absorption reads. Returns how many.
create or replace function sluice.promote_v1(p_now timestamptz) returns integer language plpgsql
  as $$
declare
  v_count integer;
begin
  with due as (
    select ctid from sluice.job where due_at <= p_now order by due_at limit 500 for update skip locked
  ), back as (
    update sluice.job j set due_at = null from due where j.ctid = due.ctid returning j.lane, j.seq
  ), arrived as (
    insert into sluice.arrival (xid, lane, pos, n)
    select pg_current_xact_id(), lane, min(seq), count(*) from back group by lane
  )
  select count(*) into v_count from back;
  return v_count;
end $$;
