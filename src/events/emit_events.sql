-- Records events and sends each subscription one job for each event, in one statement: nothing is lost in between. An
-- event whose id is known already is left out. It fails if one of these ids is of an event of another type: its emitter
-- would take that event for its own.
-- p_ids, p_types: one element for each event.
-- p_events: envelopes as JSON, one a line.
-- p_notify: notify idle workers.
-- Returns how many events were new.
create or replace function engine.emit_events(p_ids uuid[], p_types text[], p_events text, p_notify boolean)
returns integer language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  -- It is assigned before subscriptions are read: catching up waits for the transactions that a subscription met, by
  -- this number.
  v_xid xid8 := pg_current_xact_id();
  v_now timestamptz := sluice.now();
  v_new uuid[];
  v_other record;
begin
  with kind as (
    select t.type, (select count(*) from engine.find_subscriptions(t.type)) as routed
    from (select distinct unnest(p_types) as type) t
  ), fresh as (
    insert into sluice.emitted (id, type, at, event, routed, aged)
    select g.id, g.type, v_now, g.event::jsonb, k.routed,
           case when current_setting('transaction_isolation') in ('repeatable read', 'serializable') then true end
    from unnest(p_ids, p_types, string_to_array(p_events, E'\n')) with ordinality g (id, type, event, ord)
    join kind k on k.type = g.type
    order by g.ord
    on conflict (id) do nothing
    returning id
  )
  select array_agg(f.id order by o.ord) into v_new
  from fresh f join (
    select id, min(ord) as ord from unnest(p_ids) with ordinality u (id, ord) group by id) o using (id);
  if cardinality(v_new) is distinct from cardinality(p_ids) then
    select g.id, g.type, e.type as known into v_other from unnest(p_ids, p_types) g (id, type)
    join sluice.emitted e on e.id = g.id and e.type <> g.type limit 1;
    if v_other.id is not null then
      perform engine.raise_error('SLUICE_BAD_ID', format('id %s is of an event of type %s, not of %s: give another id',
        v_other.id, v_other.known, v_other.type));
    end if;
  end if;
  if v_new is null then return 0; end if;
  perform engine.deliver_events(v_new, null, null, false, p_notify);
  return cardinality(v_new);
end $$;
