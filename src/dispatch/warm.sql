-- Calls what claims are made of, for nothing: a connection plans each statement when it comes to it first, which takes longer than
-- a grant lives.
create or replace function engine.warm(p_claim uuid, p_worker bigint, p_now bigint, p_cap bigint) returns void language plpgsql as $$
begin
  perform engine.direct(p_claim, p_worker, null, engine.fresh(null), 0, p_now, 0, p_cap), engine.survey('{}', '{}', '{}', '{}', p_cap),
    engine.draw(p_claim, p_worker, p_now, null, 0, null), engine.onward(p_now, null, null, false, 0, 0, null);
  perform engine.pick('{}', 0, 0, 1), engine.refile('{}', 0, 0, 1), engine.resolve(p_worker, '{}', '{}'), engine.room('{}', p_now), engine.left('{}', '{}', p_now),
    engine.share(0, '{}', '{}', '{}', '{}', '{1}', '{}', '{}', null), engine.heads('{}', '{1}', '{}', '{}', '{}', 1, p_now),
    engine.mark(p_claim, p_worker, p_now, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'), engine.promote(p_now, p_now);
end $$;
