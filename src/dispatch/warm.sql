-- Calls what claims are made of, for nothing: a connection plans each statement when it comes to it first, which takes longer than
-- a grant lives.
create or replace function sluice.warm_v1(p_claim uuid, p_worker bigint, p_now bigint, p_cap bigint) returns void language plpgsql as $$
begin
  perform sluice.direct_v1(p_claim, p_worker, null, sluice.fresh_v1(null), 0, p_now, 0, p_cap), sluice.survey_v1('{}', '{}', '{}', '{}', p_cap),
    sluice.draw_v1(p_claim, p_worker, p_now, null, 0, null), sluice.onward_v1(p_now, null, null, false, 0, 0, null);
  perform sluice.pick_v1('{}', 0, 0, 1), sluice.refile_v1('{}', 0, 0, 1), sluice.resolve_v1(p_worker, '{}', '{}'), sluice.room_v1('{}', p_now), sluice.left_v1('{}', '{}', p_now),
    sluice.share_v1(0, '{}', '{}', '{}', '{}', '{1}', '{}', '{}', null), sluice.heads_v1('{}', '{1}', '{}', '{}', '{}', 1, p_now),
    sluice.mark_v1(p_claim, p_worker, p_now, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'), sluice.promote_v1(p_now, p_now);
end $$;
