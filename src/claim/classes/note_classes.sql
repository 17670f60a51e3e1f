-- Writes how far the arrivals of classes are read, and about how many jobs of each wait, after a claim.
-- p_news: what read_arrivals.sql returned for each class.
-- p_of, p_taken: the classes of the lanes that gave jobs, and how many each; a class may come more than once.
create or replace function engine.note_classes(p_news engine.news[], p_of bigint[], p_taken integer[]) returns void language plpgsql as $$
declare
  v_news engine.news;
  v_is sluice.class_state;
  v_taken integer;
begin
  foreach v_news in array p_news loop
    v_is := v_news.state;
    v_taken := 0;
    for i in 1 .. coalesce(cardinality(p_of), 0) loop
      if p_of[i] = v_is.class then v_taken := v_taken + p_taken[i]; end if;
    end loop;
    insert into sluice.class_state (class, n, snap, xid, waiting, target, at_xid, at_lane, at_pos)
    select v_is.class, v_is.n + case when v_news.fresh then 0 else 1 end, v_is.snap, v_is.xid,
           case when v_is.class = 0 or exists (select 1 from sluice.list l where l.class = v_is.class and l.due is not null)
             then greatest(0, v_is.waiting - v_taken) else 0 end,
           v_is.target, v_is.at_xid, v_is.at_lane, v_is.at_pos
    where v_news.fresh or v_taken > 0;  -- in the statement, so that warm plans it
  end loop;
end $$;
