-- Returns a job as its worker gets it, without input and tags: the elements of a JSON array without its brackets
-- (claim/claimed-job.ts names them). It is one expression, which the planner puts in place of the call, and is called
-- where the row is at hand (RETURNING): to carry rows through a plan as a whole, or to check them as JSON, costs twice
-- as much as this function. The time is a whole number, so that one that is not finite fails here, where
-- claim/parking/rehearse_claim.sql finds the job, and not in the reader of the answer. The element for admission is 2
-- when nobody has read the job with the code of its task, 1 when it has met no rules, 0 when it has, and the rules' own
-- record when they gave it keys, or when it has the time limit of a message (`withLimit` in tasks/admit.ts).
-- p_life: how long the job's grants live, in microseconds.
-- p_same: the job before it in the answer is of the same lane. An ordinary job then has only the elements that differ,
-- so the caller keeps the order.
-- p_list: the list in which its lane waited (`sluice.lane`); null: it did not wait.
create or replace function engine.encode_job(p_job sluice.job, p_life bigint, p_same boolean, p_list bigint)
returns text
language sql stable as $$
  select case
    when p_same and p_job.failed = 0 and p_job.throttled = 0 and p_job.crashes = 0 and not p_job.ambiguous
      and p_job.raw is null and p_job.ruled is null and p_job.costs is null and p_job.charged_buckets is null then
      p_job.seq || ',"' || p_job.id || '",' || p_job.attempt || ','
      || floor(date_part('epoch', p_job.created_at) * 1000)::bigint
    -- One call with many arguments instead of 40 operators: each claim prepares every operator anew.
    else btrim(json_build_array(
      p_job.seq, p_job.id, p_job.attempt, floor(date_part('epoch', p_job.created_at) * 1000)::bigint, p_job.task,
      p_job.queue, p_job.failed, p_job.throttled, p_job.crashes, p_job.ambiguous, p_job.priority, p_job.buckets,
      case when p_job.raw then '2' when p_job.ruled is null then '1'
           when p_job.ruled @? '$[*] ? (exists (@.keys) || exists (@.timeoutMs))' then p_job.ruled else '0' end,
      p_job.costs, p_life, p_job.charged_buckets,
      case when p_list in (0, 1) is false then p_list::text end)::text, '[]') end
$$;
