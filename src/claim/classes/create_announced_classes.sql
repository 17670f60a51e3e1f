-- Makes the classes for which senders announced arrivals under class 0, because they knew no such class, or takes them
-- out of retirement. The first job of each lane gives the class its queue, task and labels. Rows are inserted by id,
-- because other transactions may insert the same rows. Returns true when more are left.
create or replace function engine.create_announced_classes() returns boolean
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off set lock_timeout = '1s' as $$
declare
  v_news engine.news;
begin
  perform engine.lock_classes('{0}');
  v_news := engine.read_arrivals(0);
  if not v_news.fresh then return v_news.rest; end if;
  -- Many lanes have one class, and hashing its name costs more than to read a job.
  insert into sluice.class (id, queue, task, labels)
  select k.id, k.queue, k.task, k.labels from (
    select engine.class_id(f.queue, f.task, f.labels) as id, f.* from (
      select distinct j.queue, j.task, engine.find_label_limits(j.buckets) as labels
      from unnest(v_news.lanes, v_news.bounds) a (lane, bound)
      cross join lateral (
        select queue, task, buckets from sluice.job
        where lane = a.lane and seq >= a.bound and due_at is null order by seq limit 1) j) f) k
  -- A class that exists is left out: the insert would lock its row, and other transactions may wait for that row while
  -- they hold the class's lock.
  where not exists (select 1 from sluice.class c where c.id = k.id and c.retired is null)
  order by k.id on conflict (id) do update set retired = null where class.retired is not null;
  perform engine.record_class_states(array[v_news], null, null);
  return v_news.rest;
end $$;
