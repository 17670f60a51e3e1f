-- Looks whether the store still is what it was, where the server has started since somebody looked: before anything is
-- granted there.
create or replace function engine.same() returns void language plpgsql as $$
begin
  if (select server_at from sluice.epoch) is distinct from pg_postmaster_start_time() then
    perform engine.look(null, null, null); end if;
end $$;
