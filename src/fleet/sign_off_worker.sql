-- Signs off a worker that has ended all its attempts. Its unfinished jobs, if there are any, go back uncalled.
create or replace function engine.sign_off_worker(p_worker bigint) returns void language plpgsql as $$
begin
  perform engine.rescue_worker(p_worker, null, 'shutdown');
end $$;
