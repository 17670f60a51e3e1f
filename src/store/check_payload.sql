-- Refuses JSON that no sender in TypeScript may send, either (core/payload.ts): more than 256 KiB, or more than 32
-- levels. With some thousand levels a program that lists jobs ends for lack of stack.
-- p_what: names it in messages, such as 'an input'.
create or replace function engine.check_payload(p_value jsonb, p_what text) returns void language plpgsql as $$
declare
  v_bytes integer := octet_length(p_value::text);
begin
  if v_bytes > 262144 then
    perform engine.raise_error('SLUICE_PAYLOAD_TOO_LARGE', p_what || ' can have at most 256 KiB');
  end if;
  if v_bytes > 64
     and jsonb_path_exists(p_value, 'strict $.**{32} ? (@.type() == "object" || @.type() == "array")') then
    perform engine.raise_error('SLUICE_BAD_PAYLOAD', p_what || ' can have at most 32 levels');
  end if;
end $$;
