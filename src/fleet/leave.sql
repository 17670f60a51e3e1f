-- Signs off a worker that has ended all its attempts. Its unfinished jobs, if there are any, go back uncalled.
create or replace function engine.leave(p_worker bigint) returns void language plpgsql as $$
begin
  perform engine.rescue(p_worker, null, 'shutdown');
end $$;
