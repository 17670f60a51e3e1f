-- Plans all statements of a claim, because a connection plans each one when it first runs it: in a real claim that
-- would take longer than a grant may be used. It calls the functions of a claim without effect, and then claims for no
-- task. It makes announced classes last, because that locks class 0: processes that start at one time would wait for
-- one another's planning.
create or replace function engine.plan_claim_statements(p_worker bigint, p_cap bigint) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off set lock_timeout = '1s' as $$
declare
  v_now constant bigint := engine.limiter_now_us(p_cap);
  v_claimer constant engine.claimer := (null, p_worker, 0, 1, v_now, 0, p_cap)::engine.claimer;
  v_room constant engine.claim_room := (v_now, null, '{-1}', '{}', '{}', null, false, null)::engine.claim_room;
begin
  perform engine.read_locked_classes('{}'), engine.record_class_states(array[null::engine.news], '{}', '{}'),
    engine.read_arrivals(null);
  perform engine.claim_lone_lane(v_claimer, null), engine.grant_lanes_ahead(v_claimer, v_room, '{}'),
    engine.grant_ahead(null, 0, v_now),
    engine.read_claim_room('{}', '{}', '{}', '{}', p_cap),
    engine.mark_lane_jobs(v_claimer, null, 0, v_room, null);
  perform engine.select_lanes('{}', '{}', 0, 0, 0, 1),
    engine.resolve_buckets(p_worker, '{}', '{}'), engine.recorded_room('{}', v_now),
    engine.units_left_for_jobs('{}', v_now),
    engine.divide_by_turns(0, '{}', '{}', '{}', '{}', '{1}', '{}', '{}', '{}', null, '{}', null, null),
    engine.read_costed_jobs('{}', '{}', '{}', 1, null),
    engine.mark_jobs(v_claimer, '{}', v_room, null, null, null),
    engine.advance_lanes('{}', '{}', '{}', '{}', '{}', '{}'), engine.update_lists(v_now, '{}', '{}'),
    engine.promote_due_jobs(v_now, v_now), engine.find_idle_lane(p_worker, 0, 0);
  perform engine.find_classes_without_room(w.labels, array(
    select c.id from sluice.class c where c.labels is not null and c.task = any (w.tasks) limit 1), v_now)
  from sluice.worker w where w.id = p_worker;
  perform engine.claim_jobs(null, p_worker, '{}', 1, p_cap, false);
  perform engine.create_announced_classes();
end $$;
