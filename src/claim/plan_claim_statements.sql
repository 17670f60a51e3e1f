-- Calls the functions that a claim consists of, without effect, because a connection plans each statement when it first
-- runs it: in a real claim that would take longer than a grant may be used.
create or replace function engine.plan_claim_statements(p_claim uuid, p_worker bigint, p_now bigint, p_cap bigint)
returns void
language plpgsql as $$
begin
  perform engine.lock_classes('{}'), engine.record_class_states(array[null::engine.news], '{}', '{}'),
    engine.read_arrivals(null);
  perform engine.claim_lone_lane(p_claim, p_worker, null, null, 0, p_now, 0, p_cap, 0),
    engine.grant_lanes_ahead('{}', '{-1}', '{}', 0, p_now, 1), engine.grant_ahead(null, 0, p_now),
    engine.read_claim_room('{}', '{}', '{}', '{}', p_cap),
    engine.mark_lane_jobs(p_claim, p_worker, p_now, null, null, 0, '{}', null);
  perform engine.select_lanes('{}', '{}', 0, 0, 0, 1), engine.move_turns('{}', 0, 0, 1),
    engine.resolve_buckets(p_worker, '{}', '{}'), engine.bucket_room('{}', p_now),
    engine.units_left_for_jobs('{}', p_now),
    engine.divide_by_turns(0, '{}', '{}', '{}', '{}', '{1}', '{}', '{}', '{}', null, '{}', null, null),
    engine.read_costed_jobs('{}', '{}', '{}', 1, p_now),
    engine.mark_jobs(p_claim, p_worker, p_now, null, '{}', '{}', '{}', '{}'),
    engine.advance_lanes(p_now, '{}', '{}', '{}', '{}', '{}', '{}'),
    engine.promote_due_jobs(p_now, p_now), engine.find_idle_lane(p_worker, 0, 0);
end $$;
