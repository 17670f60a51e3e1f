-- Seats lanes in the lists that they have moved to (null: in none).
create or replace function sluice.reseat_v1(p_lane sluice.lane[], p_lists bigint[]) returns void language plpgsql as $$
begin
  with moved as (
    select q.*, p_lists[q.ordinality] as new_list from unnest(p_lane) with ordinality q where q.list is distinct from p_lists[q.ordinality]
  ), gone as (
    delete from sluice.seat s using moved m
    where s.class = m.class and s.list = m.list and s.fair = m.fair and s.rank = -m.priority and s.lane = m.id
  )
  insert into sluice.seat (class, list, fair, rank, lane)
  select m.class, m.new_list, m.fair, -m.priority, m.id from moved m where m.new_list is not null;
end $$;
