-- Ends what engine.acquire_grants did with takers that were granted: makes lists due for the units that were given
-- back, and takes the granted out of their lines. The caller has locked the buckets.
-- p_takers: those whose `back` was given back; null: the lists are due already.
-- p_gone: the lines of those that were granted.
create or replace function engine.leave_lines(
  p_takers engine.taker[], p_gone uuid[], p_buckets bigint[], p_now bigint) returns void language plpgsql as $$
declare
  v_taker engine.taker;
begin
  foreach v_taker in array coalesce(p_takers, '{}') loop
    continue when v_taker.back is null;
    perform engine.make_lists_due(p_buckets, v_taker.back_units, p_now);
  end loop;
  delete from sluice.taker t where t.id = any (p_gone);
end $$;
