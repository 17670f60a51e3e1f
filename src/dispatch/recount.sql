-- Begins the bookkeeping of arrivals anew, from the jobs themselves: after a restore, when what was noted of absorbed
-- transactions means nothing in this server. Reads every waiting job once. Call under the absorber's lock.
create or replace function sluice.recount_v1() returns void language plpgsql as $$
begin
  delete from sluice.absorbed;
  delete from sluice.arrival;
  update sluice.lane set n = 0, list = null;
  delete from sluice.wait;
  insert into sluice.arrival (xid, lane, pos, n)
  select pg_current_xact_id(), lane, min(seq), count(*) from sluice.job where claim is null and due_at is null group by lane;
end $$;
