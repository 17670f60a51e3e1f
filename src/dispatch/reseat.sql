-- Seats lanes in the lists that they have moved to (null: in none), under their new ranks.
create or replace function engine.reseat(p_lane sluice.lane[], p_lists bigint[], p_ranks integer[]) returns void language plpgsql as $$
begin
  with moved as (
    select q.*, p_lists[q.ordinality] as new_list, p_ranks[q.ordinality] as new_rank from unnest(p_lane) with ordinality q
    where q.list is distinct from p_lists[q.ordinality] or q.rank <> p_ranks[q.ordinality]
  ), gone as (
    delete from sluice.seat s using moved m
    where s.class = m.class and s.list = m.list and s.fair = m.fair and s.rank = m.rank and s.lane = m.id
  )
  insert into sluice.seat (class, list, fair, rank, lane)
  select m.class, m.new_list, m.fair, m.new_rank, m.id from moved m where m.new_list is not null;
end $$;
