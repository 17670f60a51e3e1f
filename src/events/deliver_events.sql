-- Sends each subscription a job for each of these events. The job's id follows from the event and the handler, so an
-- event that is delivered again changes nothing.
-- p_ids: the events, in the order in which they are to be handled.
-- p_service, p_handler: the subscription that gets them; null: all.
-- p_late: they were emitted earlier: a subscription gets those since its beginning that it has not got yet.
-- p_notify: notify idle workers.
-- Returns how many jobs were sent.
create or replace function engine.deliver_events(p_ids uuid[], p_service text, p_handler text, p_late boolean,
  p_notify boolean)
returns integer language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_xid xid8 := pg_current_xact_id();
  v_floor uuid := engine.fresh_id_floor();
  v_queues text[];
  v_new uuid[];
begin
  with given as materialized (
    select e.id, e.type, e.at, e.event, o.ord
    from unnest(p_ids) with ordinality o (id, ord) join sluice.emitted e on e.id = o.id
  ), sub as materialized (
    select k.type as kind, s.*
    from (select distinct type from given) k cross join lateral engine.find_subscriptions(k.type) s
    where p_service is null or (s.service = p_service and s.handler = p_handler)
  ), fresh as (
    insert into sluice.job (id, lane, priority, created_at, task, queue, buckets, input, raw)
    select engine.delivery_id(g.id, s.service, s.origin),
           case when s.paths is null then s.lane else engine.lane_id(s.queue, s.task, 0, 1, null, t.buckets) end,
           0, v_now, s.task, s.queue, t.buckets,
           jsonb_build_object('service', s.service, 'handler', s.handler, 'event', g.event),
           case when s.buckets is null or (s.paths is not null and t.buckets is null) then true end
    from given g join sub s on s.kind = g.type and (not p_late or s.since <= g.at)
    cross join lateral (select case when s.paths is null then nullif(s.buckets, '{}')
                                    else engine.delivery_buckets(s.buckets, s.paths, g.event) end as buckets) t
    -- One handler under two names, in a deploy or after one was undone: the name that started last gets the event.
    order by g.ord, s.seen_at desc
    on conflict (id) do nothing
    returning id, lane, seq, queue, task, buckets
  ), arrived as (
    insert into sluice.arrival (xid, class, lane, pos, n)
    select v_xid, c.class, f.lane, f.pos, f.n
    from (select lane, min(seq) as pos, count(*) as n, min(queue) as queue, min(task) as task, min(buckets) as buckets
          from fresh group by lane) f
    cross join lateral engine.find_arrival_classes(f.queue, f.task, f.buckets) c
  )
  select array_agg(id), array_agg(distinct queue) into v_new, v_queues from fresh;
  -- An event that was emitted before, and deleted since, may be emitted again.
  if p_late or exists (select 1 from unnest(v_new) j (id) where j.id < v_floor) then
    perform engine.delete_repeated_jobs(v_new);
  end if;
  if p_notify and v_queues is not null then perform engine.wake_queues(v_queues); end if;
  return coalesce(cardinality(v_new), 0);
end $$;
