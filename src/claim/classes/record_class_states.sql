-- Records, after a claim, how far the arrivals of classes are read, and about how many jobs of each class wait, without
-- those that left without a claim (`engine.recount_waiting`).
-- p_news: what `engine.read_arrivals` returned for each class
-- p_of: the classes of the lanes that gave jobs; a class may occur more than once
-- p_taken: how many jobs each of those lanes gave
create or replace function engine.record_class_states(p_news engine.news[], p_of bigint[], p_taken integer[])
returns void
language plpgsql as $$
declare
  v_news engine.news;
  v_state sluice.class_state;
  v_taken integer;
begin
  foreach v_news in array p_news loop
    v_state := v_news.state;
    v_taken := 0;
    for i in 1 .. coalesce(cardinality(p_of), 0) loop
      if p_of[i] = v_state.class then v_taken := v_taken + p_taken[i]; end if;
    end loop;
    insert into sluice.class_state (class, n, snap, waiting, target, at_xid, at_lane, at_pos)
    select v_state.class, coalesce(v_state.n, 0) + 1, v_state.snap,
           -- The list that is due last: before an earlier one the index may have dead rows, which would be read.
           case when v_state.class = 0 or (
                  select true from sluice.list l where l.class = v_state.class and l.due is not null
                  order by l.due desc limit 1)
             then greatest(0, v_state.waiting - v_taken) else 0 end,
           v_state.target, v_state.at_xid, v_state.at_lane, v_state.at_pos
    -- Not in an `if`, so `engine.plan_claim_statements` has the statement planned.
    where v_news.fresh or v_taken > 0 and v_state.n > 0;
  end loop;
end $$;
