-- Stores the handlers of a service: what is new begins with events from `since` on; what is known keeps its beginning.
-- p_service: the service.
-- p_handlers: JSON, a list of objects with handler, formerly (its former names), pattern, type or regex, task, queue,
-- buckets, paths, sinceMs (so long ago) or sinceAt (a time).
create or replace function engine.subscribe_handlers(p_service text, p_handlers text) returns void
language plpgsql set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_one record;
begin
  for v_one in
    select h.*, string_to_array(h.bucket_text, E'\x1f') as buckets, p.paths
    from jsonb_to_recordset(p_handlers::jsonb) h (handler text, formerly text[], pattern text, type text, regex text,
      task text, queue text, bucket_text text, path_list jsonb, since_ms float8, since_at timestamptz)
    cross join lateral (select case when h.path_list is not null
      then array(select jsonb_array_elements_text(h.path_list)) end as paths) p
    order by h.handler
  loop
    -- A handler under a new name goes on where it was.
    update sluice.subscription s set handler = v_one.handler
    where s.service = p_service and s.handler = any (v_one.formerly)
      and s.handler = (select min(f.handler) from sluice.subscription f
                       where f.service = p_service and f.handler = any (v_one.formerly))
      and not exists (select 1 from sluice.subscription n where n.service = p_service and n.handler = v_one.handler);
    insert into sluice.subscription as s (service, handler, pattern, type, regex, task, queue, buckets, paths, lane,
      since, created_at, seen_at)
    values (p_service, v_one.handler, v_one.pattern, v_one.type, v_one.regex, v_one.task, v_one.queue, v_one.buckets,
      v_one.paths, engine.lane_id(v_one.queue, v_one.task, 0, 1, null, nullif(v_one.buckets, '{}')),
      coalesce(v_one.since_at, v_now - make_interval(secs => coalesce(v_one.since_ms, 0) / 1000)), v_now, v_now)
    on conflict (service, handler) do update set pattern = excluded.pattern, type = excluded.type,
      regex = excluded.regex, task = excluded.task, queue = excluded.queue, buckets = excluded.buckets,
      paths = excluded.paths, lane = excluded.lane, seen_at = excluded.seen_at,
      -- A wider pattern, too, begins now, with what is emitted by transactions under way.
      phase = case when s.pattern = excluded.pattern then s.phase else 0 end,
      since = case when s.pattern = excluded.pattern then s.since else v_now end;
  end loop;
end $$;
