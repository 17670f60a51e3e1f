-- Returns how much of the free units of these buckets a claim may give to jobs: where takers wait and have the turn, it
-- subtracts the units that they want, or one place for each of them (p_places).
-- p_buckets: the buckets' ids.
-- p_avail: the free units, or places, of each.
-- p_now: limiter's time in microseconds.
-- p_places: p_avail counts places of a concurrency rule.
create or replace function engine.units_left_for_jobs(p_buckets bigint[], p_avail bigint[], p_now bigint,
  p_places boolean default false) returns bigint[]
language plpgsql stable as $$
declare
  v_wait record;
  v_at integer;
begin
  for v_wait in
    select t.bucket, case when p_places then count(*) else sum(t.cost) end as cost
      from sluice.taker t where t.alive_until > p_now and t.reserves and t.bucket = any (p_buckets)
      group by 1
  loop
    v_at := array_position(p_buckets, v_wait.bucket);
    continue when p_avail[v_at] = 0 or engine.jobs_have_turn(v_wait.bucket, p_now, true);
    p_avail[v_at] := greatest(0, p_avail[v_at] - v_wait.cost);
  end loop;
  return p_avail;
end $$;
