-- Runs engine.look if the server was restarted since the last look, before anything is granted there.
create or replace function engine.same() returns void language plpgsql as $$
begin
  if (select server_at from sluice.epoch) is distinct from pg_postmaster_start_time() then
    perform engine.look(null, null, null); end if;
end $$;
