-- Returns a page of jobs in the order of their ids. It reads the next p_scan jobs, and returns those that the filter
-- matches and always the last one that it read, from which the next page goes on. So a page takes no longer when few
-- jobs match. An id carries the time of creation by the sender's clock, or a time chosen by the caller, which may be up
-- to a day off the store's clock; the bounds that since and until put on ids allow for two days.
-- p_table: job, done or failed.
-- p_filter: as in `engine.write_page_query`
-- p_down: newest first.
-- p_from: begin after this id; p_last: end with this id; null: no bound.
-- p_scan: how many jobs to read.
-- p_form: id, line, or whole (with input and result).
-- hit: the filter matches the job.
-- nth: the position of the job among those that were read.
create or replace function engine.page_jobs(
  p_table text, p_filter jsonb, p_down boolean, p_from uuid, p_last uuid, p_scan integer, p_form text)
returns table (hit boolean, nth integer, id uuid, state text, reason text, task text, queue text, priority integer,
  attempt integer, failed integer, throttled integer, crashes integer, ambiguous boolean, created_ms float8,
  due_ms float8, dispatched_ms float8, started_ms float8, finished_ms float8, buckets text[], tags text[], error jsonb,
  input jsonb, result jsonb, weight integer, expires_ms float8, ruled jsonb, costs integer[], charged_buckets text[],
  attempts json, notes json, worker json)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  return query execute
    engine.write_page_query(p_table, p_filter, p_down, p_from is not null, p_last is not null, p_form)
  using p_filter, p_from, p_last, p_scan;
end $$;
