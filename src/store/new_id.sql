-- Makes a UUIDv7: its first 48 bits are the time in ms, so that ids sort by creation; the rest is random.
create or replace function engine.new_id() returns uuid language plpgsql volatile as $$
declare
  v_ms bigint := (sluice.now_us() / 1000);
begin
  return overlay(replace(gen_random_uuid()::text, '-', '')
                 placing lpad(to_hex(v_ms), 12, '0') || '7' from 1 for 13)::uuid;
end $$;
