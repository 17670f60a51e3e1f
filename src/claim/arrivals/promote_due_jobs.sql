-- Returns jobs that have become due, which were scheduled or in backoff, to their places in their lanes, and returns
-- how many; 500 at most. It inserts arrivals for them, which a later claim reads. A job that was scheduled counts as
-- waiting since it was due; a retry keeps its age. It is no part of a claim, because it keeps rows locked.
-- p_now, p_since: jobs that became due after p_since and by p_now, in the limiter's time, in microseconds; p_since < 0:
-- all until p_now
create or replace function engine.promote_due_jobs(p_now bigint, p_since bigint) returns integer language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
  set lock_timeout = '1s' as $$
declare
  v_now constant timestamptz := engine.store_time(p_now);
  v_since constant timestamptz := case when p_since < 0 then '-infinity' else engine.store_time(p_since) end;
  v_count integer;
begin
  with due as (
    select ctid from sluice.job where due_at <= v_now and due_at > v_since
    order by due_at limit 500 for update skip locked
  ), back as (
    update sluice.job j set due_at = null, since = case when j.dispatched_at is null then j.due_at else j.since end
    from due where j.ctid = due.ctid returning j.lane, j.seq, j.queue, j.task, j.buckets
  ), arrived as (
    insert into sluice.arrival (xid, class, lane, pos, n)
    select pg_current_xact_id(), c.class, b.lane, b.pos, b.n
    from (select lane, min(seq) as pos, count(*) as n, min(queue) as queue, min(task) as task, min(buckets) as buckets
          from back group by lane) b
    cross join lateral engine.find_arrival_classes(b.queue, b.task, b.buckets) c
  )
  select count(*) into v_count from back;
  return v_count;
end $$;
