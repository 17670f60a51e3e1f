-- Stores the handlers of a service. A new handler begins with events from `since` on; a known one keeps its beginning.
-- p_service: the service.
-- p_handlers: JSON, a list of objects with handler, formerly (its former names), pattern, type or regex, task, queue,
-- bucket_text (buckets, separated by U+001F) and path_list, since_ms (so long ago) or since_at (a time).
-- Returns the handlers that the service has besides these.
create or replace function engine.subscribe_handlers(p_service text, p_handlers text) returns setof text
language plpgsql set jit = off as $$
declare
  v_now timestamptz := sluice.now();
begin
  -- A handler under a new name goes on where it was.
  update sluice.subscription s set handler = h.handler
  from jsonb_to_recordset(p_handlers::jsonb) h (handler text, formerly text[])
  where s.service = p_service and s.handler = any (h.formerly)
    and s.handler = (select min(f.handler) from sluice.subscription f
                     where f.service = p_service and f.handler = any (h.formerly))
    and not exists (select 1 from sluice.subscription n where n.service = p_service and n.handler = h.handler);
  -- An older process may have stored the old name again.
  delete from sluice.subscription s
  using jsonb_to_recordset(p_handlers::jsonb) h (handler text, formerly text[]), sluice.subscription n
  where s.service = p_service and s.handler = any (h.formerly)
    and n.service = p_service and n.handler = h.handler and n.origin = s.origin;
  insert into sluice.subscription as s (service, handler, origin, pattern, type, regex, task, queue, buckets, paths,
    lane, class, since, created_at, seen_at)
  select p_service, h.handler, case when o.is_taken then h.handler || '/' || pg_current_xact_id() else h.handler end,
    h.pattern, h.type, h.regex, h.task, h.queue, b.buckets,
    case when h.path_list is not null then array(select jsonb_array_elements_text(h.path_list)) end,
    engine.lane_id(h.queue, h.task, 0, 1, null, nullif(b.buckets, '{}')),
    engine.class_id(h.queue, h.task, nullif(b.buckets, '{}')),
    coalesce(h.since_at, v_now - make_interval(secs => coalesce(h.since_ms, 0) / 1000)), v_now, v_now
  from jsonb_to_recordset(p_handlers::jsonb) h (handler text, pattern text, type text, regex text, task text,
    queue text, bucket_text text, path_list jsonb, since_ms float8, since_at timestamptz)
  cross join lateral (select string_to_array(h.bucket_text, E'\x1f') as buckets) b
  -- Another handler of these had this name first.
  cross join lateral (select exists (select 1 from sluice.subscription o
    join jsonb_to_recordset(p_handlers::jsonb) g (handler text) on g.handler = o.handler
    where o.service = p_service and o.handler <> h.handler and o.origin = h.handler) as is_taken) o
  order by h.handler
  on conflict (service, handler) do update set pattern = excluded.pattern, type = excluded.type,
    regex = excluded.regex, task = excluded.task, queue = excluded.queue, buckets = excluded.buckets,
    paths = excluded.paths, lane = excluded.lane, class = excluded.class, seen_at = excluded.seen_at,
    old_tasks = case when s.task = excluded.task then s.old_tasks
      else array_remove(array_remove(s.old_tasks, s.task), excluded.task) || s.task end,
    -- A changed pattern begins now, and includes events of transactions that are under way.
    phase = case when s.pattern = excluded.pattern then s.phase else 0 end,
    since = case when s.pattern = excluded.pattern then s.since else v_now end
  where s.seen_at < v_now - interval '1 min' or (s.pattern, s.task, s.queue, s.buckets, s.paths)
    is distinct from (excluded.pattern, excluded.task, excluded.queue, excluded.buckets, excluded.paths);
  return query select s.handler from sluice.subscription s
    where s.service = p_service
      and s.handler not in (select h.handler from jsonb_to_recordset(p_handlers::jsonb) h (handler text))
    order by 1;
end $$;
