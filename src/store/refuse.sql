-- Refuses what was asked, with a stable code in front of the message, as the library's errors have one.
create or replace function engine.refuse(p_code text, p_message text) returns void language plpgsql as $$
begin
  raise exception '%: %', p_code, p_message using errcode = '22023';
end $$;
