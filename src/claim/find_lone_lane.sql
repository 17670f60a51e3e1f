-- Finds the lane that is alone in a class, for `engine.claim_lone_lane`. It counts the lanes that a claim looks at:
-- those in front of the ready list and of lists that are due, and those that stand behind another lane of their fair
-- key. It stops as soon as it has seen that no lane is alone.
-- p_news: what has arrived for the class
-- lane: the only lane with something to do; null: there is none, or it is not known yet
-- waits: jobs have arrived for it, but it waits for a bucket that is not due
-- unfit: this case needs `engine.decide_claim`: more than one lane, a lane that is not known yet, or one with costs
create or replace function engine.find_lone_lane(
  p_news engine.news, p_begun bigint, p_since bigint, out lane sluice.lane, out waits boolean, out unfit boolean)
language plpgsql stable as $$
declare
  v_class constant bigint := (p_news.state).class;
  v_count bigint;
  v_front bigint;
begin
  unfit := true;
  if p_news.rest or cardinality(p_news.lanes) > 1 then return; end if;
  select count(*), min(s.id) into v_count, v_front from (
    select t.id from (
      (select id, floor from sluice.list where class = v_class and id = 0 order by v desc limit 1)
      union all
      (select id, floor from sluice.list
       where class = v_class and due > p_since and due <= p_begun and id <> 0 order by due limit 2)
    ) l cross join lateral (
      select r.id from sluice.lane r where r.class = v_class and r.list = l.id and r.vstart >= l.floor
      order by r.vstart, r.id limit 2) t
    union all
    (select b.id from sluice.lane b where b.class = v_class and b.list is not null and b.vstart is null limit 1)) s;
  if v_count > 1 or v_front <> p_news.lanes[1] then return; end if;
  select * into lane from sluice.lane l where l.id = coalesce(v_front, p_news.lanes[1]) order by l.v desc limit 1;
  waits := v_front is null and lane.list is not null;
  unfit := case when lane.id is null then p_news.lanes is not null
                  -- It stands behind another lane of its fair key.
                  when lane.list is not null and lane.vstart is null then true
                  else lane.costed and not waits end;
end $$;
