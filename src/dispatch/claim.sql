-- Claims up to p_want jobs of the given tasks and queues (null: all queues) that all their limits allow now.
-- One autocommitted statement: it absorbs arrivals, decides, charges and marks, or does nothing at all.
-- Idempotent by p_claim: asked again after a lost reply it hands out the same jobs. p_cap: the latest time that the
-- caller's monotonic clock allows the store's clock to show (null: unknown). p_idle: register as idle when there is
-- less to do than wanted. p_since: nothing that is due stood before this time, as an earlier answer said (null: unknown).
-- p_wide: look at as many lanes as a claim may; after one that found only lanes that are blocked.
-- waited_us: how long after its begin it decided. wake_us: when to ask again; again: at once, for something was in the
-- way; both: the jobs are those of an earlier request. since: what to give as p_since. p_want = 0 only warms the
-- connection up: everything is planned and nothing done. A lock is waited for a second at most.
create or replace function sluice.claim_v1(
  p_claim uuid, p_worker bigint, p_queues text[], p_tasks text[], p_want integer, p_cap bigint, p_idle boolean,
  p_since bigint default null, p_wide boolean default false,
  out now_us bigint, out waited_us bigint, out wake_us bigint, out again boolean, out since bigint, out jobs json)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
  set lock_timeout = '1s' as $$
declare
  v_classes bigint[];
  v_shut bigint[] := '{}';  -- classes that gates hold back
  v_active bigint[];
  v_labels jsonb;
  v_class bigint;
  v_begun bigint := least(sluice.now_us(), p_cap);
  v_since bigint := coalesce(p_since, -1);
  v_more boolean := false;
  v_granted integer := 0;
begin
  select w.labels into v_labels from sluice.worker w where w.id = p_worker for key share;
  if not found then raise exception 'worker % was given up', p_worker using errcode = 'SLW01'; end if;
  now_us := v_begun;
  waited_us := 0;
  since := p_since;
  if exists (select 1 from sluice.claim c where c.id = p_claim) then
    jobs := sluice.adopt_v1(p_claim);
    again := true;
    wake_us := 0;
    return;
  end if;
  delete from sluice.idle i where i.worker = p_worker;
  for round in 1 .. 2 loop
    v_classes := array(select c.id from sluice.class c
                       where c.task = any (p_tasks) and (p_queues is null or c.queue = any (p_queues))
                         and (c.labels is null or sluice.bears_v1(v_labels, c.labels)));
    if exists (select 1 from sluice.gate) then
      v_shut := sluice.held_v1(v_classes, to_timestamp(v_begun / 1e6));
      v_classes := array(select c from unnest(v_classes) c where c <> all (v_shut));
    end if;
    v_active := sluice.active_v1(0::bigint || v_classes, v_begun, v_since);
    exit when round = 2 or (p_want > 0 and 0 <> all (v_active));
    perform sluice.enclose_v1('{0}');
    v_more := sluice.absorb_v1(0);
  end loop;
  v_active := array_remove(v_active, 0::bigint);
  if exists (select 1 from sluice.class c where c.labels is not null) then
    v_active := array(select c from unnest(v_active) c, sluice.barred_v1(v_labels, v_active, v_begun) b where c <> all (b.classes));
  end if;
  if p_want = 0 then
    perform sluice.share_v1(0, '{}', '{}', '{}', '{}', '{1}', '{}', '{}', null), sluice.heads_v1('{}', '{1}', '{}', '{}', '{}', 1, v_begun), sluice.pick_v1('{}', 0, 0, 1),
      sluice.mark_v1(p_claim, p_worker, v_begun, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'), sluice.room_v1('{}', v_begun), sluice.resolve_v1(p_worker, '{}', '{}'), sluice.survey_v1('{}', '{}', '{}', '{}', v_begun), sluice.promote_v1(v_begun, v_begun);
    again := false;
    return;
  end if;
  perform sluice.enclose_v1(v_active);
  foreach v_class in array v_active loop
    v_more := sluice.absorb_v1(v_class) or v_more;
  end loop;
  select g.now_us, g.granted, g.again, g.jobs into now_us, v_granted, again, jobs
  from sluice.grant_v1(p_claim, p_worker, v_active, p_want, p_cap, v_since,
                       case when p_wide then 256 else least(256, p_want + 1) end) g;
  -- Last, when this claim waits for nothing more: of what others promote just now it may keep rows locked.
  v_more := sluice.promote_v1(v_begun, v_since) > 0 or v_more;
  again := again or v_more;
  waited_us := greatest(now_us - v_begun, 0);
  wake_us := null;
  if v_granted < p_want and not again then
    select s.wake_us, s.since into wake_us, since
    from sluice.sleep_v1(p_worker, p_queues, v_classes, v_shut, now_us, v_since, p_idle, v_labels) s;
  end if;
end $$;
