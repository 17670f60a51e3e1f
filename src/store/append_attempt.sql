-- Returns a job's attempts and one more. It keeps the first 20 and the last 20, and of several snoozes in a row the
-- last, so that a job which is put off for days keeps its failures.
-- An attempt is a JSON object, in text form (json), because that is smaller than jsonb and is never searched:
-- n: its number. at: when it began, in ms since 1970. end: how it ended. wait: ms that the job waited before it, since
-- it was sent or became due; after another attempt, since that one ended and its delay was over. in: ms after which the
-- next attempt is due. error: as in `sluice.job`. The rest is what the worker reports (claim/finish/attempt-report.ts).
-- p_job: the job as it was during the attempt
-- p_outcome: lost, cancelled, or as in `engine.finish_attempts`
-- p_began_us: how long after its claim the attempt began, in microseconds; null: not known
-- p_report: a JSON array of an object with at least one field, which becomes a part of the attempt, and of notes
-- (worker/notes.ts); null: there is nothing to add
-- p_error: JSON; null: none
-- p_delay_us: after this time the next attempt is due, in microseconds; null: there is none
create or replace function engine.append_attempt(
  p_job sluice.job, p_outcome text, p_began_us bigint, p_report text, p_error text, p_delay_us bigint) returns json[]
language plpgsql stable as $$
declare
  v_all json[] := p_job.attempts;
  v_last constant integer := coalesce(cardinality(p_job.attempts), 0);
  v_most constant integer := 20;
  v_before constant json := p_job.attempts[v_last];
  v_since timestamptz := coalesce(p_job.since, p_job.created_at);
  v_end constant text := case p_outcome when 'retry' then 'retried' when 'return' then 'snoozed'
    when 'interrupt' then 'interrupted' else p_outcome end;
begin
  if p_report is null then return v_all; end if;
  v_since := greatest(v_since, 'epoch'::timestamptz + make_interval(secs => ((v_before ->> 'at')::bigint
    + (v_before ->> 'ms')::bigint + coalesce((v_before ->> 'in')::bigint, 0)) / 1e3));
  if v_end = 'snoozed' and v_last > 0 and v_all[v_last] ->> 'end' = 'snoozed' then
    v_all := v_all[:v_last - 1];
  elsif v_last >= 2 * v_most then
    v_all := v_all[:v_most] || v_all[v_last - v_most + 2:];
  end if;
  return v_all || ('{"n":' || p_job.attempt || ',"at":'
    || floor(extract(epoch from p_job.dispatched_at) * 1000 + coalesce(p_began_us, 0) / 1000)::bigint
    || ',"end":"' || v_end || '"'
    || coalesce(',"wait":' || greatest(0, round(extract(epoch from
         p_job.dispatched_at - v_since) * 1000))::bigint, '')
    || coalesce(',"in":' || p_delay_us / 1000, '') || coalesce(',"error":' || p_error, '')
    || ',' || substr(p_report::json ->> 0, 2))::json;
end $$;
