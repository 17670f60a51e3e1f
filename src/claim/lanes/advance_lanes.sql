-- Advances lanes after a claim, under the locks of their classes: to their next bound and turn, into the list of the
-- bucket that denied them, or out of all lists when no job is left. Returns those that changed, for
-- `engine.update_lists`.
-- p_lanes: the lanes as they were selected.
-- p_starts: the virtual start of each lane's fair key (`turns` of `engine.select_lanes`).
-- p_steps: what a unit of each lane adds to it.
-- p_blocked: the position in p_buckets of the bucket that denied each lane; 0: none.
-- p_moves: what became of the lanes' jobs.
create or replace function engine.advance_lanes(
  p_lanes sluice.lane[], p_starts bigint[], p_steps bigint[], p_blocked integer[], p_buckets bigint[],
  p_moves engine.move[]) returns sluice.lane[]
language plpgsql as $$
declare
  v_grouped bigint[] := array(
    select c.id from sluice.class c where c.id in (select l.class from unnest(p_lanes) l) and c.grouped);
  -- A lane's move is found by its position in this array: a join of arrays would compare every pair.
  v_ids bigint[] := array(select m.lane from unnest(p_moves) with ordinality m order by m.ordinality);
  v_next sluice.lane[];
begin
  with was as (
    select l.*, p_starts[l.ordinality] as start, m.taken, m.last,
           m.seen > 0 and m.seen = m.taken as whole,  -- the claim took all jobs that it looked at
           not m.more and m.seen = m.taken as over,  -- no job is left
           greatest(m.rank, l.rank) as next_rank, nullif(p_blocked[l.ordinality], 0) as blocked,
           coalesce(m.turn_units, m.taken, 0) * p_steps[l.ordinality] as step
    from unnest(p_lanes) with ordinality l
    left join lateral (
      select (x.m).* from (select p_moves[array_position(v_ids, l.id)] as m offset 0) x) m on true
  ), goal as (
    select w.*, max(w.start) over k + sum(w.step) over k as far, sum(w.step) over k > 0 as served,
           case when not coalesce(w.over, false) then coalesce(p_buckets[w.blocked], 0) end as to_list,
           bool_or(w.costed) over (partition by w.class) as in_order
    from was w window k as (partition by w.class, w.fair)
  ), next as (
    select g.id, g.v, g.to_list as list, case when g.whole then g.last + 1 else g.bound end as bound,
           g.next_rank as rank,
           case when g.vstart is null and g.to_list = g.list then null
                -- A list is due when the next job of its front lane fits. A claim serves first the fair key whose
                -- turn comes first in all classes. If jobs need different numbers of units, the two have to be the
                -- same lane, so each lane of the class gets the turn of its fair key.
                when g.served or g.vstart is null or g.in_order then g.far
                else g.vstart end as vstart,
           -- 2: units are reserved for the lane; 100 fits the column.
           case when g.taken > 0 then case when g.list = 0 then 0 else least(g.denied, 2) end
                when p_buckets[g.blocked] <> g.list and g.list <> 0 then least(g.denied + 1, 100)
                else g.denied end as denied
    from goal g
  ), moved as (
    update sluice.lane l
    set v = l.v + 1, list = n.list, bound = n.bound, rank = n.rank, vstart = n.vstart, denied = n.denied
    from next n where l.id = n.id and l.v = n.v
      and (l.list, l.bound, l.rank, l.vstart, l.denied)
        is distinct from (n.list, n.bound, n.rank, n.vstart, n.denied::smallint)
    returning l as lane
  )
  select array_agg(m.lane) into v_next from moved m;
  if v_grouped <> '{}' then
    perform engine.choose_front_lanes(g.class, g.list, array_agg(g.fair)) from (
      select l.class, l.list, l.fair from unnest(p_lanes || v_next) l
      where l.class = any (v_grouped) and l.list is not null group by 1, 2, 3) g
    group by g.class, g.list;
  end if;
  return v_next;
end $$;
