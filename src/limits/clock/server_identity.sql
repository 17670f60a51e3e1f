-- Returns what identifies this server: its system identifier and timeline, which a promoted standby and a recovery from
-- a backup change; and the position up to which its log is on disk, which never goes back on a server that kept what it
-- acknowledged. Null where the server does not give these.
create or replace function engine.server_identity(out identity text, out lsn pg_lsn) language plpgsql as $$
begin
  lsn := pg_current_wal_flush_lsn();
  identity := (select system_identifier from pg_control_system()) || '/' || left(pg_walfile_name(lsn), 8);
exception when others then
  identity := null;
  lsn := null;
end $$;
