-- Delivers a portion of the events that a subscription of this service lacks: events from before it was stored, and
-- events of transactions that could not see it. It reads all events since the subscription's beginning twice: at once,
-- and again when all transactions have ended that were open when it was stored. Then it delivers events that were
-- emitted at repeatable read. Returns whether there may be more to do at once.
create or replace function engine.catch_up_service(p_service text) returns boolean
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 500;
  v_snap pg_snapshot := pg_current_snapshot();
  v_sub sluice.subscription;
  v_ids uuid[];
  v_last sluice.emitted;
begin
  if exists (select 1 from sluice.subscription s where s.service = p_service and s.phase < 4) then
    -- This transaction's number comes after the subscription's commit. An emitter that is open may have the snapshot's
    -- xmax, or a higher one.
    update sluice.subscription s set phase = s.phase + 1, last_at = s.since, last_id = null,
      barrier = case s.phase when 0 then pg_current_xact_id() else s.barrier end
    where (s.service, s.handler) in (
      select o.service, o.handler from sluice.subscription o
      where o.service = p_service and (o.phase = 0 or (o.phase = 2 and pg_snapshot_xmin(v_snap) >= o.barrier))
      for update skip locked);
    -- Most subscriptions lack nothing.
    update sluice.subscription s set phase = s.phase + 1
    where (s.service, s.handler) in (
      select o.service, o.handler from sluice.subscription o
      where o.service = p_service and o.phase in (1, 3) and o.type is not null
        and not exists (select 1 from sluice.emitted e where e.type = o.type and e.at >= o.last_at)
      for update skip locked);
    if found then return true; end if;
    select * into v_sub from sluice.subscription s where s.service = p_service and s.phase in (1, 3)
    order by s.handler limit 1 for update skip locked;
  end if;
  if v_sub.service is null then
    -- Their emitters may not have seen all subscriptions.
    v_ids := array(select e.id from sluice.emitted e where e.aged order by e.id limit v_portion for update skip locked);
    if v_ids = '{}' then return false; end if;
    perform engine.deliver_events(v_ids, null, null, true, true);
    update sluice.emitted e set aged = null where e.id = any (v_ids);
    return cardinality(v_ids) = v_portion;
  end if;
  v_ids := array(
    select e.id from engine.list_emitted() t (type)
    cross join lateral (
      select v.id, v.at from sluice.emitted v
      where v.type = t.type
        and (v.at, v.id) > (v_sub.last_at, coalesce(v_sub.last_id, '00000000-0000-0000-0000-000000000000'))
      order by v.at, v.id limit v_portion) e
    where t.type = v_sub.type or t.type ~ v_sub.regex
    order by e.at, e.id limit v_portion);
  perform engine.deliver_events(v_ids, v_sub.service, v_sub.handler, true, true);
  select * into v_last from sluice.emitted e where e.id = v_ids[cardinality(v_ids)];
  update sluice.subscription s set last_at = coalesce(v_last.at, s.last_at), last_id = coalesce(v_last.id, s.last_id),
    phase = case when cardinality(v_ids) < v_portion then s.phase + 1 else s.phase end
  where s.service = p_service and s.handler = v_sub.handler;
  return true;
end $$;
