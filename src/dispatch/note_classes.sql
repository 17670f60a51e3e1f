-- Writes how far the arrivals of classes are read, and about how many jobs of each wait, after a claim that took so many (p_taken) of
-- lanes of these classes (p_of). p_news: what read_arrivals.sql returned for each class.
create or replace function engine.note_classes(p_news engine.news[], p_of bigint[], p_taken integer[]) returns void language plpgsql as $$
begin
  insert into sluice.class_state (class, n, snap, xid, waiting, target, at_xid, at_lane, at_pos)
  select s.class, s.n + case when w.fresh then 0 else 1 end, s.snap, s.xid,
         case when s.class = 0 or exists (select 1 from sluice.list l where l.class = s.class and l.due is not null)
           then greatest(0, s.waiting - coalesce(t.taken, 0)) else 0 end, s.target, s.at_xid, s.at_lane, s.at_pos
  from unnest(p_news) w cross join lateral (select (w.state).*) s
  left join (select u.of, sum(u.taken) as taken from unnest(p_of, p_taken) u (of, taken) group by 1) t on t.of = s.class
  where w.fresh or t.taken > 0;
end $$;
