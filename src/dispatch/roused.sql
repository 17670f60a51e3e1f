-- Has lanes that wait for a limit whose definition changed looked at again: the new one may have room. Waits for all
-- claims under way, also those that just make a bucket of this limit: they may have decided by the old definition, and
-- would note the old due time after us. Call once the new definition is committed.
create or replace function sluice.roused_v1(p_name text) returns void language plpgsql as $$
declare
  v_now bigint;
begin
  perform sluice.lock_v1(array(select generate_series(0, 1023)::bigint));
  v_now := sluice.now_us();
  update sluice.list set due = v_now where due > v_now and id in (select id from sluice.bucket where name = p_name);
end $$;
