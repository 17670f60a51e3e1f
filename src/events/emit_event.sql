-- Records one event and sends each subscription its job, as `emit_events` does for several. An event whose id is known
-- already is left out, if it has this type. One short statement does it, unless a handler has had another name, its
-- class is not known yet, its key may decide about its class, or the event may have been deleted meanwhile: then
-- `engine.deliver_events` sends the jobs.
-- p_event: the envelope as JSON.
-- p_notify: notify idle workers.
-- Returns how many events were new.
create or replace function engine.emit_event(p_id uuid, p_type text, p_event text, p_notify boolean)
returns integer language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  -- It is assigned before subscriptions are read: catching up waits for the transactions that a subscription met, by
  -- this number.
  v_xid xid8 := pg_current_xact_id();
  v_now timestamptz := sluice.now();
  v_event jsonb := p_event;
  v_fresh boolean := p_id >= engine.fresh_id_floor();
  v_aged boolean := nullif(current_setting('transaction_isolation') in ('repeatable read', 'serializable'), false);
  v_other boolean;
  v_idle boolean;
begin
  with sub as materialized (
    select s.service, s.handler, s.task, s.queue, s.class, s.buckets is null or s.paths is not null as may_be_raw,
           case when s.paths is null then nullif(s.buckets, '{}')
                else engine.delivery_buckets(s.buckets, s.paths, v_event) end as buckets,
           case when s.paths is null then s.lane
                else engine.lane_id(s.queue, s.task, 0, 1, null,
                  engine.delivery_buckets(s.buckets, s.paths, v_event)) end as lane,
           v_fresh and s.origin = s.handler and (s.paths is null or strpos(array_to_string(s.buckets, ''), '@') = 0)
             and exists (select 1 from sluice.class c where c.id = s.class and c.retired is null) as is_plain
    from engine.find_subscriptions(p_type) s
  ), event as (
    insert into sluice.emitted (id, type, at, event, routed, aged)
    select p_id, p_type, v_now, v_event, count(*), v_aged from sub
    on conflict (id) do nothing
    returning id
  ), fresh as (
    insert into sluice.job (id, lane, priority, created_at, task, queue, buckets, input, raw)
    select engine.delivery_id(p_id, s.service, s.handler), s.lane, 0, v_now, s.task, s.queue, s.buckets,
           jsonb_build_object('service', s.service, 'handler', s.handler, 'event', v_event),
           case when s.may_be_raw and s.buckets is null then true end
    from event cross join sub s where not exists (select 1 from sub o where not o.is_plain)
    on conflict (id) do nothing
    returning lane, seq
  ), arrived as (
    insert into sluice.arrival (xid, class, lane, pos, n)
    select v_xid, (select s.class from sub s where s.lane = f.lane limit 1), f.lane, f.seq, 1 from fresh f
  )
  select exists (select 1 from sub o where not o.is_plain), exists (select 1 from sluice.idle)
  into v_other, v_idle from event;
  if not found then return engine.emit_events(array[p_id], array[p_type], p_event, p_notify); end if;
  if v_other then
    perform engine.deliver_events(array[p_id], null, null, false, p_notify);
  elsif v_idle and p_notify then
    perform engine.wake_queues(array(select distinct s.queue from engine.find_subscriptions(p_type) s));
  end if;
  return 1;
end $$;
