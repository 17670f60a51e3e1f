-- Identity of the lane in which a job waits. dispatch/admit.ts computes the same.
create or replace function sluice.lane_id_v1(p_queue text, p_task text, p_priority integer, p_weight integer, p_fair text, p_takes text[])
returns bigint language sql immutable as $$
  select sluice.hash64(concat_ws(E'\x1f', p_queue, p_task, p_priority, coalesce(p_fair, ''), array_to_string(p_takes, E'\x1f'))
    || case when coalesce(p_weight, 1) = 1 then '' else E'\x1e' || p_weight end)
$$;
