-- Makes the classes that have arrived (p_news of class 0), from the first job of each lane. Rows that others make too are inserted
-- in order.
create or replace function engine.make_classes(p_news engine.news) returns void language plpgsql as $$
begin
  insert into sluice.class (id, queue, task, labels)
  select distinct engine.class_id(j.queue, j.task, j.takes) as id, j.queue, j.task, engine.labels(j.takes)
  from unnest(p_news.lanes, p_news.bounds) a (lane, bound)
  cross join lateral (select queue, task, takes from sluice.job where lane = a.lane and seq >= a.bound and due_at is null order by seq limit 1) j
  -- One that stands is left out: its row would be locked, while others wait for it under the class's lock.
  where not exists (select 1 from sluice.class c where c.id = engine.class_id(j.queue, j.task, j.takes) and c.retired is null)
  order by id on conflict (id) do update set retired = null where class.retired is not null;
end $$;
