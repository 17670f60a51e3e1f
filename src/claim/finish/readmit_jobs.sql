-- Returns jobs that were handed out, but whose handler was not called, to the store, to wait elsewhere: their task has
-- other limits now, a rule decided so, or they had not met their task's code before. A job keeps its place in time, and
-- is in its new one at once unless it is put off. The caller has locked the classes (`engine.lock_classes_of_jobs`).
-- Returns the ids of the jobs that it changed.
-- p_claims: the claim of each job
-- p_places: JSON for each job; null: the job stays. The fields that it has are changed, and fair and buckets in any
-- case.
create or replace function engine.readmit_jobs(p_ids uuid[], p_claims uuid[], p_places text[]) returns uuid[]
language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
begin
  with place as (
    select u.id, u.claim, x.p, coalesce(to_timestamp((x.p ->> 'atUs')::bigint / 1e6),
      v_now + make_interval(secs => nullif((x.p ->> 'delayUs')::bigint, 0) / 1e6)) as due
    from unnest(p_ids, p_claims, p_places) u (id, claim, place) cross join lateral (select u.place::jsonb as p) x
    where u.place is not null
  ), moved as (
    update sluice.job j set
      claim = null, attempt = j.attempt - 1, raw = null, lane = (p ->> 'lane')::bigint | (j.lane & 1),
      due_at = place.due, task = coalesce(p ->> 'task', j.task),
      queue = coalesce(p ->> 'queue', j.queue), priority = coalesce((p ->> 'priority')::smallint, j.priority),
      fair = p ->> 'fair',
      buckets = case when p -> 'buckets' <> 'null' then array(select jsonb_array_elements_text(p -> 'buckets')) end,
      costs = translate(p ->> 'costs', '[]', '{}')::integer[],
      weight = coalesce((p ->> 'weight')::smallint, j.weight),
      tags = case when p ? 'tags' then array(select jsonb_array_elements_text(p -> 'tags')) else j.tags end,
      expires_at = coalesce(j.expires_at,
        greatest(j.since, j.created_at, place.due)
        + make_interval(secs => (p ->> 'waitUs')::bigint / 1e6)),
      once = coalesce((p ->> 'once')::boolean, j.once), on_failed = coalesce(p ->> 'onFailed', j.on_failed),
      ruled = case when not p ? 'ruled' then j.ruled
        -- A rule that holds the job again and again is recorded once.
        when j.ruled -> -1 ->> 'rule' = p -> 'ruled' -> 0 ->> 'rule' then (j.ruled - -1) || (p -> 'ruled')
        -- A time limit without a list becomes the first element of one, even if nothing follows: the job has met rules.
        else coalesce(j.ruled, '[]') || (p -> 'ruled') end,
      delay_reason = p ->> 'delayReason'
    from place where j.id = place.id and j.claim = place.claim
    returning j.id
  )
  select array_agg(id) into v_ids from moved;
  if v_ids is not null then perform engine.announce_jobs(v_ids); end if;
  return coalesce(v_ids, '{}');
end $$;
