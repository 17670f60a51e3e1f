-- Ends a stint: its worker begins no more of the jobs that the dispatcher had claimed. If it was the dispatcher's last
-- stint, nobody can begin the other jobs, which go back uncalled.
-- p_stint: the stint
-- p_claims, p_seqs: the jobs that its worker has begun, as far as it does not know that their ends are recorded
-- p_known: all claims that the dispatcher had when it was silent. If it has jobs of a later one, it lives, and nothing
-- changes. Null: this is not checked, because the worker of the stint has left, or is lost.
create or replace function engine.end_stint(
  p_stint text, p_claims uuid[], p_seqs bigint[], p_known uuid[] default null) returns void
language plpgsql set lock_timeout = '2s' as $$
declare
  v_worker bigint;
  v_left text[];
  v_ids uuid[];
  v_of uuid[];
begin
  update sluice.worker w set stints = array_remove(w.stints, p_stint) where p_stint = any (w.stints)
    and (p_known is null or not exists (
      select 1 from sluice.claim c cross join unnest(c.lanes, c.seqs) s (lane, seq)
      join sluice.job j on j.lane = s.lane and j.seq = s.seq and j.due_at is null and j.claim = c.id
      where c.worker = w.id and c.id <> all (p_known)))
  returning w.id, w.stints into v_worker, v_left;
  if not found then return; end if;
  if v_left = '{}' then perform engine.lock_classes_of_worker(v_worker); end if;
  update sluice.claim c set begun = array(
    select unnest(c.begun) union select u.seq from unnest(p_claims, p_seqs) u (claim, seq) where u.claim = c.id)
  where c.worker = v_worker and c.id = any (p_claims);
  if cardinality(v_left) > 0 then return; end if;
  select array_agg(j.id), array_agg(j.claim) into v_ids, v_of
  from sluice.claim c cross join unnest(c.lanes, c.seqs) s (lane, seq)
  join sluice.job j on j.lane = s.lane and j.seq = s.seq and j.due_at is null and j.claim = c.id
  where c.worker = v_worker and s.seq <> all (coalesce(c.begun, '{}')) and c.id = any (coalesce(p_known, array[c.id]));
  if v_ids is null then return; end if;
  perform engine.release_attempts(v_ids, v_of, array(select true from unnest(v_ids)));
  perform engine.return_uncalled(v_ids, v_of);
  perform pg_notify('sluice.wake', '*');
end $$;
