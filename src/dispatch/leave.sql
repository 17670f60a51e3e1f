-- A worker that has ended all its attempts signs off. Its unfinished jobs, if there are any, go back uncalled.
create or replace function sluice.leave_v1(p_worker bigint) returns void language plpgsql as $$
begin
  perform sluice.rescue_v1(p_worker, null, 'shutdown');
end $$;
