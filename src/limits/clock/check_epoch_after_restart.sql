-- Runs engine.check_epoch if the server was restarted since the last look, before anything is granted there.
create or replace function engine.check_epoch_after_restart() returns void language plpgsql as $$
begin
  if (select server_at from sluice.epoch) is distinct from pg_postmaster_start_time() then
    perform engine.check_epoch(null, null, null); end if;
end $$;
