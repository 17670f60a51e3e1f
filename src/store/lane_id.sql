-- Computes the id of the lane in which a job waits, exactly as tasks/placement.ts does.
-- The id is even. A job that failed before waits in the lane with the next id, which takes turns with this one.
-- p_buckets: the names of the buckets that the job needs.
-- p_costed: the job has costs other than 1.
create or replace function engine.lane_id(
  p_queue text, p_task text, p_priority integer, p_weight integer, p_fair text, p_buckets text[],
  p_costed boolean default false)
returns bigint language sql stable as $$
  select -2 & sluice.hash64(concat_ws(E'\x1f', p_queue, p_task, p_priority, coalesce(p_fair, ''),
                                 nullif(array_to_string(p_buckets, E'\x1f'), ''),
                                 E'\x1e' || nullif(p_weight, 1), case when p_costed then E'\x1d' end))
$$;
