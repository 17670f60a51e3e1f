-- Returns a page of jobs in the order of their ids. It reads the next p_scan jobs, and returns those that the filter
-- matches and always the last one that it read, from which the next page goes on. So a page takes no longer when few
-- jobs match. An id carries the time of creation by the sender's clock, or a time chosen by the caller, which may be up
-- to a day off the store's clock; the bounds that since and until put on ids allow for two days.
-- p_table: job, done or failed.
-- p_filter: any of states, task, queue, tag, reason, error (a part of it), limitKey, since and until (when finished
-- jobs ended, when others were created), paths and values (fields of the input and what they must equal).
-- p_down: newest first.
-- p_from: begin after this id; p_last: end with this id; null: no bound.
-- p_scan: how many jobs to read.
-- p_form: id, line, or whole (with input and result).
-- hit: the filter matches the job.
-- nth: the position of the job among those that were read.
create or replace function engine.page_jobs(
  p_table text, p_filter jsonb, p_down boolean, p_from uuid, p_last uuid, p_scan integer, p_form text)
returns table (hit boolean, nth integer, id uuid, state text, reason text, task text, queue text, priority integer,
  attempt integer, failed integer, crashes integer, ambiguous boolean, created_ms float8, due_ms float8,
  dispatched_ms float8, started_ms float8, finished_ms float8, takes text[], tags text[], error jsonb, input jsonb,
  result jsonb, weight integer, expires_ms float8, ruled jsonb, costs integer[], holds text[], attempts json,
  notes json, worker json)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_own text := case p_table when 'job' then
    $q$case when claim is not null then 'running' when due_at < 'infinity' then 'scheduled' else 'waiting' end as state,
       null::text as reason, nullif(due_at, 'infinity') as due_at, dispatched_at as started_at,
       null::timestamptz as finished_at, null::jsonb as result, expires_at, claim, holds$q$
    else $q$state, reason, null::timestamptz as due_at, started_at, finished_at, result,
       null::timestamptz as expires_at, null::uuid as claim, null::text[] as holds$q$ end;
  v_fits text := concat_ws(' and ', 'state in (select jsonb_array_elements_text($1 -> ''states''))',
    case when p_filter ? 'task' then 'task = $1 ->> ''task''' end,
    case when p_filter ? 'queue' then 'queue = $1 ->> ''queue''' end,
    case when p_filter ? 'tag' then '$1 ->> ''tag'' = any (tags)' end,
    case when p_filter ? 'reason' then 'reason = $1 ->> ''reason''' end,
    case when p_filter ? 'error' then 'strpos(lower(error ->> ''message''), lower($1 ->> ''error'')) > 0' end,
    case when p_filter ? 'limitKey' then '$1 ->> ''limitKey'' = any (takes)' end,
    case when p_filter ? 'since' then 'coalesce(finished_at, created_at) >= ($1 ->> ''since'')::timestamptz' end,
    case when p_filter ? 'until' then 'coalesce(finished_at, created_at) < ($1 ->> ''until'')::timestamptz' end,
    case when p_filter ? 'paths' then
      $q$not exists (select 1 from jsonb_array_elements($1 -> 'paths') with ordinality p (path, i)
           where input #>> array(select jsonb_array_elements_text(p.path))
                 is distinct from $1 -> 'values' ->> (p.i - 1)::integer)$q$ end);
  v_within text := concat_ws(' and ', 'true',
    case when p_from is not null then format('id %s $2', case when p_down then '<' else '>' end) end,
    case when p_last is not null then format('id %s $3', case when p_down then '>=' else '<=' end) end,
    case when p_filter ? 'since' and p_table = 'job' then
      'id >= engine.id_floor(((extract(epoch from ($1 ->> ''since'')::timestamptz) - 172800) * 1000)::bigint)' end,
    case when p_filter ? 'until' then
      'id < engine.id_floor(((extract(epoch from ($1 ->> ''until'')::timestamptz) + 172800) * 1000)::bigint)' end);
  v_order text := case when p_down then 'id desc' else 'id' end;
begin
  return query execute format($q$
    select s.hit, s.nth::integer, s.id, %s, %s
    from (select t.*, coalesce((%s), false) as hit, row_number() over (order by %s) as nth, count(*) over () as n
          from (select id, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, dispatched_at, takes,
                       tags, error, input, weight, ruled, costs, attempts, notes, %s
                from sluice.%I where %s order by %s limit $4) t) s
    where s.hit or s.nth = s.n order by %s $q$,
    case when p_form = 'id' then
      'null::text, null::text, null::text, null::text, null::integer, null::integer, null::integer, null::integer,
        null::boolean, null::float8, null::float8, null::float8, null::float8, null::float8, null::text[], null::text[],
        null::jsonb'
      else 's.state, s.reason, s.task, s.queue, s.priority::integer, s.attempt, s.failed, s.crashes, s.ambiguous,
        engine.unix_ms(s.created_at), engine.unix_ms(s.due_at), engine.unix_ms(s.dispatched_at),
        engine.unix_ms(s.started_at), engine.unix_ms(s.finished_at), s.takes, s.tags, s.error' end,
    case when p_form = 'whole' then
      $w$s.input, s.result, coalesce(s.weight, 1)::integer, engine.unix_ms(s.expires_at), s.ruled, s.costs, s.holds,
        to_json(s.attempts), s.notes, (
          select json_build_object('id', w.id::text, 'host', w.host, 'pid', w.pid, 'version', w.version)
          from sluice.claim c join sluice.worker w on w.id = c.worker where c.id = s.claim)$w$
      else 'null::jsonb, null::jsonb, null::integer, null::float8, null::jsonb, null::integer[], null::text[],
        null::json, null::json, null::json' end,
    v_fits, v_order, v_own, p_table, v_within, v_order, v_order)
  using p_filter, p_from, p_last, p_scan;
end $$;
