-- Makes the classes for which senders announced arrivals under class 0, because they knew no such class. Returns true
-- when more are left.
create or replace function engine.create_announced_classes() returns boolean language plpgsql as $$
declare
  v_news engine.news;
begin
  perform engine.lock_classes('{0}');
  v_news := engine.read_arrivals(0);
  if v_news.future then
    perform engine.rebuild_arrivals(0);
    return true;
  end if;
  if not v_news.fresh then return false; end if;
  perform engine.make_classes(v_news);
  perform engine.record_class_states(array[v_news], null, null);
  return v_news.rest;
end $$;
