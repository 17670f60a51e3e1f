-- Announces jobs that wait in other lanes, or wait again, to those lanes, and notifies idle workers of their queues.
-- Senders and claims, which announce jobs by the thousand, insert arrivals in the statement that writes the jobs.
-- p_ids: the jobs; those that are scheduled are left out. Null: none.
create or replace function engine.announce_jobs(p_ids uuid[]) returns void language plpgsql as $$
declare
  v_queues text[];
begin
  with arrived as (
    insert into sluice.arrival (xid, class, lane, pos, n)
    select pg_current_xact_id(), c.class, l.lane, l.pos, l.n
    from (select lane, min(seq) as pos, count(*) as n, min(queue) as queue, min(task) as task, min(buckets) as buckets
          from sluice.job where id = any (p_ids) and due_at is null group by lane) l
    cross join lateral engine.find_arrival_classes(l.queue, l.task, l.buckets) c
  )
  select array_agg(distinct queue) into v_queues from sluice.job where id = any (p_ids) and due_at is null;
  perform engine.wake_queues(v_queues);
end $$;
