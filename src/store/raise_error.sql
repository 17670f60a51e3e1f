-- Raises an error for a bad request. The message begins with a stable code, like the errors of the TypeScript library.
create or replace function engine.raise_error(p_code text, p_message text) returns void language plpgsql as $$
begin
  raise exception '%: %', p_code, p_message using errcode = '22023';
end $$;
