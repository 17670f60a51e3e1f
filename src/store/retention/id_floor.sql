-- Returns the smallest UUIDv7 of a millisecond (p_ms, since 1970): the lower bound of a history partition. Before 1970
-- it is the least UUID, because to_hex writes negative numbers as very large ones.
create or replace function engine.id_floor(p_ms bigint) returns uuid language sql immutable as
  $$ select (lpad(to_hex(greatest(0, p_ms)), 12, '0') || '00000000000000000000')::uuid $$;
