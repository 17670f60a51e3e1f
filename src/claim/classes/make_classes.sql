-- Inserts the classes of what arrived for class 0, or takes them out of retirement. The first job of each lane gives
-- the class its queue, task and labels. Rows are inserted by id, because other transactions may insert the same rows.
-- p_news: the arrivals of class 0
create or replace function engine.make_classes(p_news engine.news) returns void language plpgsql as $$
begin
  insert into sluice.class (id, queue, task, labels)
  select distinct engine.class_id(j.queue, j.task, j.takes) as id, j.queue, j.task, engine.find_label_limits(j.takes)
  from unnest(p_news.lanes, p_news.bounds) a (lane, bound)
  cross join lateral (
    select queue, task, takes from sluice.job
    where lane = a.lane and seq >= a.bound and due_at is null order by seq limit 1) j
  -- A class that exists is left out: the insert would lock its row, and other transactions may wait for that row while
  -- they hold the class's lock.
  where not exists (
    select 1 from sluice.class c
    where c.id = engine.class_id(j.queue, j.task, j.takes) and c.retired is null)
  order by id on conflict (id) do update set retired = null where class.retired is not null;
end $$;
