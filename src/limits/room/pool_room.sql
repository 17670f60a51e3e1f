-- Returns what the pool of a definition allows, in the form of engine.bucket_room; a pool has no state of its own. To
-- act on the answer, the caller locks the members first.
-- p_def: the definition.
-- p_ord, p_bucket: place in the call of engine.bucket_room, and id, of the pool's own bucket.
-- p_now, p_wall: the limiter's and the store's clock, in microseconds.
-- p_need: units that the next job needs.
-- p_states: as in engine.recorded_room.
create or replace function engine.pool_room(p_def sluice.limit_def, p_ord integer, p_bucket bigint, p_now bigint,
  p_wall bigint, p_need bigint, p_states engine.state[])
returns engine.room language plpgsql stable as $$
declare
  v_members constant bigint[] := array(select sluice.hash64(p_def.name || ':' || m) from unnest(p_def.members) m);
begin
  return engine.sum_member_rooms(p_def, p_ord, p_bucket, p_now, p_wall,
    engine.recorded_room(v_members, p_now, false, case
      when p_need > 1 then array_fill(p_need, array[cardinality(v_members)]) end, p_states => p_states));
end $$;
