-- Claims jobs of a class that is locked, to see whether that fails; the caller rolls it back (`engine.rehearse_claim`).
-- Stale buckets are renewed first, as the worker does whose claim finds them.
-- p_rehearsal: as in `engine.find_faults`
create or replace function engine.try_claim(p_rehearsal engine.rehearsal, p_class bigint, p_begun bigint)
returns engine.claimed language plpgsql as $$
declare
  v_claimer constant engine.claimer :=
    (gen_random_uuid(), p_rehearsal.worker, p_rehearsal.want, null, p_begun, -1, p_rehearsal.cap)::engine.claimer;
  v_done engine.claimed;
begin
  loop
    v_done := engine.decide_claim(v_claimer, array[p_class], '{}', 256);
    exit when v_done.stale is null;
    perform engine.renew_bucket_states(v_done.stale, p_rehearsal.cap);
  end loop;
  return v_done;
end $$;
