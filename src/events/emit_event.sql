-- Records one event and sends each subscription its job, as `emit_events` does for several, in one statement. An event
-- whose id is known already is left out.
-- p_event: the envelope as JSON.
-- p_notify: notify idle workers.
-- Returns how many events were new.
create or replace function engine.emit_event(p_id uuid, p_type text, p_event text, p_notify boolean)
returns integer language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  -- Before the look at subscriptions: catching up waits for the transactions that a subscription met, by this number.
  v_xid xid8 := pg_current_xact_id();
  v_now timestamptz := sluice.now();
  v_event jsonb := p_event;
  v_isolation text := current_setting('transaction_isolation');
  v_queues text[];
  v_new integer;
begin
  with sub as materialized (
    select s.* from engine.find_subscriptions(p_type) s
  ), event as (
    insert into sluice.emitted (id, type, at, event, routed, aged)
    values (p_id, p_type, v_now, v_event, (select count(*) from sub),
            case when v_isolation in ('repeatable read', 'serializable') then true end)
    on conflict (id) do nothing
    returning id
  ), fresh as (
    insert into sluice.job (id, lane, priority, created_at, task, queue, takes, input, raw)
    select engine.delivery_id(p_id, s.service, s.origin),
           case when s.paths is null then s.lane else engine.lane_id(s.queue, s.task, 0, 1, null, t.takes) end,
           0, v_now, s.task, s.queue, t.takes,
           jsonb_build_object('service', s.service, 'handler', s.handler, 'event', v_event),
           case when s.buckets is null or (s.paths is not null and t.takes is null) then true end
    from event cross join sub s
    cross join lateral (select case when s.paths is null then nullif(s.buckets, '{}')
                                    else engine.delivery_takes(s.buckets, s.paths, v_event) end as takes) t
    -- One handler under two names, in a deploy or after one was undone: the name that started last gets the event.
    order by s.seen_at desc
    on conflict (id) do nothing
    returning lane, seq, queue, task, takes
  ), arrived as (
    insert into sluice.arrival (xid, class, lane, pos, n)
    select v_xid, c.class, f.lane, f.pos, f.n
    from (select lane, min(seq) as pos, count(*) as n, min(queue) as queue, min(task) as task, min(takes) as takes
          from fresh group by lane) f
    cross join lateral engine.find_arrival_classes(f.queue, f.task, f.takes) c
  )
  select array_agg(distinct f.queue), count(distinct e.id) into v_queues, v_new from event e left join fresh f on true;
  if p_notify and v_queues is not null then perform engine.wake_queues(v_queues); end if;
  return v_new;
end $$;
