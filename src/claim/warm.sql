-- Calls the functions that a claim consists of, without effect, because a connection plans each statement when it first
-- runs it: in a real claim that would take longer than a grant may be used.
create or replace function engine.warm(p_claim uuid, p_worker bigint, p_now bigint, p_cap bigint) returns void
language plpgsql as $$
begin
  perform engine.enclose('{}'), engine.note_classes(array[null::engine.news], '{}', '{}'),
    engine.read_arrivals(null);
  perform engine.claim_lone(p_claim, p_worker, null, null, 0, p_now, 0, p_cap),
    engine.survey('{}', '{}', '{}', '{}', p_cap),
    engine.mark_lane(p_claim, p_worker, p_now, null, 0, null);
  perform engine.select_lanes('{}', '{}', 0, 0, 0, 1), engine.move_turns('{}', 0, 0, 1),
    engine.resolve(p_worker, '{}', '{}'), engine.room('{}', p_now), engine.left('{}', '{}', p_now),
    engine.share(0, '{}', '{}', '{}', '{}', '{1}', '{}', '{}', '{}', null, '{}', null, null),
    engine.heads('{}', '{}', '{}', 1, p_now),
    engine.mark_jobs(p_claim, p_worker, p_now, '{}', '{}', '{}', '{}'),
    engine.advance_lanes(p_now, '{}', '{}', '{}', '{}', '{}'),
    engine.promote(p_now, p_now), engine.lane_alone(p_worker, 0, 0);
end $$;
