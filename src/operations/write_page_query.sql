-- Returns the text of the query of `engine.page_jobs`, with the filter as $1, p_from as $2, p_last as $3 and p_scan as
-- $4. A condition that an index serves bounds the jobs that the page reads; all others only decide which of these are
-- hits.
-- p_filter: any of states, task, queue, tag, reason, error (a part of it), errorCode, failures (at least), limit, key,
-- since and until (when finished jobs ended, when others were created), dispatchedSince and dispatchedUntil, firstId
-- and lastId, paths and values (fields of the input and what they must equal).
-- p_has_from, p_has_last: the page has these bounds
create or replace function engine.write_page_query(
  p_table text, p_filter jsonb, p_down boolean, p_has_from boolean, p_has_last boolean, p_form text) returns text
language plpgsql immutable as $$
declare
  v_own text := case p_table when 'job' then
    $q$engine.state_of_job(job) as state,
       engine.read_scheduled_reason(job) as reason, engine.scheduled_until(job) as due_at,
       case when claim is null or not engine.is_granted_ahead(job) then dispatched_at end as started_at,
       null::timestamptz as finished_at, null::jsonb as result, expires_at, claim, charged_buckets$q$
    else $q$state, reason, null::timestamptz as due_at, started_at, finished_at, result,
       null::timestamptz as expires_at, null::uuid as claim, null::text[] as charged_buckets$q$ end;
  v_fits text := concat_ws(' and ', 'state in (select jsonb_array_elements_text($1 -> ''states''))',
    case when p_filter ? 'task' then 'task = $1 ->> ''task''' end,
    case when p_filter ? 'queue' then 'queue = $1 ->> ''queue''' end,
    case when p_filter ? 'tag' then '$1 ->> ''tag'' = any (tags)' end,
    case when p_filter ? 'reason' then 'reason = $1 ->> ''reason''' end,
    case when p_filter ? 'error' then 'strpos(lower(error ->> ''message''), lower($1 ->> ''error'')) > 0' end,
    case when p_filter ? 'errorCode' then '(error ->> ''code'') = $1 ->> ''errorCode''' end,
    case when p_filter ? 'failures' then 'failed >= ($1 ->> ''failures'')::integer' end,
    case when p_filter ? 'dispatchedSince' then 'dispatched_at >= ($1 ->> ''dispatchedSince'')::timestamptz' end,
    case when p_filter ? 'dispatchedUntil' then 'dispatched_at < ($1 ->> ''dispatchedUntil'')::timestamptz' end,
    case when p_filter ? 'key' then 'concat($1 ->> ''limit'', '':'', $1 ->> ''key'') = any (buckets)'
         when p_filter ? 'limit' then
           $q$ $1 ->> 'limit' in (select substring(t from '^[^:@*/]*') from unnest(buckets) t)$q$ end,
    case when p_filter ? 'since' then 'coalesce(finished_at, created_at) >= ($1 ->> ''since'')::timestamptz' end,
    case when p_filter ? 'until' then 'coalesce(finished_at, created_at) < ($1 ->> ''until'')::timestamptz' end,
    case when p_filter ? 'paths' then
      $q$not exists (select 1 from jsonb_array_elements($1 -> 'paths') with ordinality p (path, i)
           where input #>> array(select jsonb_array_elements_text(p.path))
                 is distinct from $1 -> 'values' ->> (p.i - 1)::integer)$q$ end);
  v_within text := concat_ws(' and ', 'true',
    -- Few jobs that are unfinished or done have an error; nearly all failed ones have.
    case when p_table <> 'failed' and (p_filter ? 'errorCode' or p_filter ? 'failures') then 'error is not null' end,
    case when p_table = 'failed' and p_filter ? 'errorCode' then '(error ->> ''code'') = $1 ->> ''errorCode''' end,
    case when p_table = 'failed' and p_filter ? 'failures' then 'failed >= ($1 ->> ''failures'')::integer' end,
    case when p_filter ? 'firstId' then 'id between ($1 ->> ''firstId'')::uuid and ($1 ->> ''lastId'')::uuid' end,
    case when p_has_from then format('id %s $2', case when p_down then '<' else '>' end) end,
    case when p_has_last then format('id %s $3', case when p_down then '>=' else '<=' end) end,
    case when p_filter ? 'since' and p_table = 'job' then
      'id >= engine.id_floor(((extract(epoch from ($1 ->> ''since'')::timestamptz) - 172800) * 1000)::bigint)' end,
    case when p_filter ? 'until' then
      'id < engine.id_floor(((extract(epoch from ($1 ->> ''until'')::timestamptz) + 172800) * 1000)::bigint)' end);
  v_order text := case when p_down then 'id desc' else 'id' end;
begin
  return format($q$
    select s.hit, s.nth::integer, s.id, %s, %s
    from (select t.*, coalesce((%s), false) as hit, row_number() over (order by %s) as nth, count(*) over () as n
          from (select id, task, queue, priority, attempt, failed, throttled, crashes, ambiguous, created_at,
                       dispatched_at, buckets, tags, error, input, weight, ruled, costs, attempts, notes, %s
                from sluice.%I where %s order by %s limit $4) t) s
    where s.hit or s.nth = s.n order by %s $q$,
    case when p_form = 'id' then
      'null::text, null::text, null::text, null::text, null::integer, null::integer, null::integer, null::integer,
        null::integer, null::boolean, null::float8, null::float8, null::float8, null::float8, null::float8,
        null::text[], null::text[],
        null::jsonb'
      -- A job that was granted ahead of time has not begun the attempt that its claim counts.
      else 's.state, s.reason, s.task, s.queue, s.priority::integer,
        s.attempt - (s.state = ''waiting'' and s.claim is not null)::integer, s.failed, s.throttled, s.crashes,
        s.ambiguous,
        engine.unix_ms(s.created_at), engine.unix_ms(s.due_at), engine.unix_ms(s.dispatched_at),
        engine.unix_ms(s.started_at), engine.unix_ms(s.finished_at), s.buckets, s.tags, s.error' end,
    case when p_form = 'whole' then
      $w$s.input, s.result, coalesce(s.weight, 1)::integer, engine.unix_ms(s.expires_at), s.ruled, s.costs,
        s.charged_buckets, to_json(s.attempts), s.notes, (
          select json_build_object('id', w.id::text, 'host', w.host, 'pid', w.pid, 'version', w.version)
          from sluice.claim c join sluice.worker w on w.id = c.worker where c.id = s.claim)$w$
      else 'null::jsonb, null::jsonb, null::integer, null::float8, null::jsonb, null::integer[], null::text[],
        null::json, null::json, null::json' end,
    v_fits, v_order, v_own, p_table, v_within, v_order, v_order);
end $$;
