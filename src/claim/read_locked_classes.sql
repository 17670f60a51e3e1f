-- Locks these classes, or 32 of them at random if there are more, and reads their arrivals.
-- classes: those that it has locked. partly: they are not all.
-- news: what has arrived for each (`engine.read_arrivals`). rest: more has arrived for some of them.
create or replace function engine.read_locked_classes(
  p_classes bigint[], out classes bigint[], out partly boolean, out news engine.news[], out rest boolean)
language plpgsql as $$
declare
  v_most constant integer := 32;
  v_class bigint;
  v_news engine.news;
  v_locked boolean;  -- nothing reads it: an assignment is cheaper than PERFORM, which starts a query
begin
  classes := p_classes; partly := cardinality(p_classes) > v_most; news := '{}'; rest := false;
  if partly then
    classes := array(select c from unnest(p_classes) c order by random() limit v_most);
  end if;
  v_locked := engine.lock_classes(classes);
  foreach v_class in array classes loop
    v_news := engine.read_arrivals(v_class);
    news := news || v_news;
    rest := rest or v_news.rest;
  end loop;
end $$;
