-- Has the lists that these lanes stand in looked at within 2 s.
create or replace function engine.hasten(p_lane sluice.lane[], p_lists bigint[], p_now bigint) returns void language plpgsql as $$
begin
  update sluice.list w set due = p_now + 2000000 from (
    select distinct l.class, p_lists[l.ordinality] as id from unnest(p_lane) with ordinality l where p_lists[l.ordinality] <> 0) h
  where w.class = h.class and w.id = h.id and w.due > p_now + 2000000;
end $$;
