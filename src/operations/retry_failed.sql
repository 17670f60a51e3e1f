-- Gives failed jobs another round of attempts, in the order of their ids. They wait among the retries of their lanes,
-- behind those that wait now, and so take turns with jobs that have not failed. Skips jobs that another call retries at
-- this moment. Returns the ids of the jobs that it retried.
-- A delivery of an event counts its attempts anew, as on RabbitMQ, and is flagged as one that its handler may have had.
-- p_input: JSON that takes the place of their inputs; null: these stay. Other limit keys may follow from it, so a
-- worker with the task's code places the job anew before it may start, as it does for a job that was sent by SQL.
create or replace function engine.retry_failed(p_ids uuid[], p_input text default null) returns setof uuid
language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();  -- they wait from now on, whenever they were sent
  v_ids uuid[] := array(select id from sluice.failed where id = any (p_ids) order by id for update skip locked);
begin
  with gone as (
    delete from sluice.failed where id = any (v_ids) returning *
  ), placed as (
    select g.*, i.own_input, g.task like 'events:%' and i.own_input #>> '{event,specversion}' is not null as is_event,
      case when p_input is null then g.weight end as own_weight,
      case when p_input is null then g.fair end as own_fair,
      case when p_input is null then g.buckets end as own_buckets,
      case when p_input is null then g.costs end as own_costs,
      -- Keys that rules gave to the old input are not those of the new one.
      case when p_input is null then g.ruled
        else (select jsonb_agg(r - 'keys' order by o)
          from jsonb_array_elements('[]' || g.ruled) with ordinality u (r, o))
        end as own_ruled
    from gone g cross join lateral (select coalesce(p_input::jsonb, g.input) as own_input) i
  )
  insert into sluice.job (id, lane, priority, attempt, failed, crashes, ambiguous, created_at,
      task, queue, fair, buckets, costs, tags, input, error,
      weight, once, on_failed, ruled, raw, attempts, notes, since)
    select id, 1 | engine.lane_id(queue, task, priority, own_weight, own_fair, own_buckets, own_costs is not null),
      priority,
      case when is_event then 0 else attempt end, 0, 0, ambiguous, created_at,
      task, queue, own_fair, own_buckets, own_costs, tags,
      case when is_event then own_input || '{"again": true}' else own_input end, error,
      own_weight, once, on_failed, own_ruled, raw or p_input is not null, attempts, notes, v_now
    from placed order by id;
  perform engine.announce_jobs(v_ids);
  return query select unnest(v_ids);
end $$;
