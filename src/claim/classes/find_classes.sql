-- Finds the classes that a worker of these queues, tasks and labels serves, without locks.
-- p_queues: null for all queues.
-- p_labels: null for any labels.
-- p_at: classes are left out that gates hold back then. Null: no gate is looked at.
-- classes: all of them.
-- labelled: one of them needs a label.
-- active: those that may have something to do: arrivals, ready lanes, or a list that is due after p_since. A class
-- whose last reading is from the future (claim/arrivals/read_arrivals.sql) counts as one of them. Class 0 stands for
-- classes that do not exist yet.
-- shut: those that were left out.
create or replace function engine.find_classes(
  p_queues text[], p_tasks text[], p_labels jsonb, p_now bigint, p_since bigint, p_at timestamptz default null,
  out classes bigint[], out labelled boolean, out active bigint[], out shut bigint[])
language plpgsql stable as $$
declare
  v_unsure bigint[];
begin
  select coalesce(array_agg(k.id) filter (where k.id <> 0), '{}'), coalesce(bool_or(k.labels is not null), false),
         coalesce(array_agg(k.id) filter (where k.active), '{}'),
         array_agg(k.id) filter (where k.unsure and not k.active)
  into classes, labelled, active, v_unsure
  from (
    select c.id, c.labels,
           b.target is not null or pg_snapshot_xmax(b.snap) > pg_snapshot_xmax(pg_current_snapshot())
           or exists (
             select 1 from sluice.arrival a
             where a.class = c.id and a.xid >= coalesce(pg_snapshot_xmax(b.snap), '0'::xid8))
           or (select l.due from sluice.list l where l.class = c.id and l.id = 0 order by l.v desc limit 1) is not null
           or exists (
             select 1 from sluice.list l
             where l.class = c.id and l.id <> 0 and l.due > p_since and l.due <= p_now) as active,
           -- A transaction was in progress when the class was last read.
           right(b.snap::text, 1) <> ':' as unsure
    from (select 0::bigint as id, null::text[] as labels
          union all
          select k.id, k.labels from sluice.class k
          where k.retired is null and k.task = any (p_tasks)
            and (p_queues is null or k.queue = any (p_queues))
            and (k.labels is null or engine.has_labels(p_labels, k.labels))) c
    left join lateral (
      select s.snap, s.target from sluice.class_state s where s.class = c.id order by s.n desc limit 1) b on true
  ) k;
  if v_unsure is not null then
    active := active || array(
      select c from unnest(v_unsure) c
      cross join lateral (select s.snap from sluice.class_state s where s.class = c order by s.n desc limit 1) b
      where exists (select 1 from pg_snapshot_xip(b.snap) m join sluice.arrival a on a.class = c and a.xid = m));
  end if;
  shut := '{}';
  if p_at is not null then
    shut := engine.find_gated_classes(classes, p_at);
    classes := array(select c from unnest(classes) c where c <> all (shut));
    active := array(select c from unnest(active) c where c <> all (shut));
  end if;
end $$;
