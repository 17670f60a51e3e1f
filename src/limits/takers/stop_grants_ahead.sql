-- Stops grants ahead of time (engine.grant_ahead) of these buckets, because a caller was denied that does not wait in
-- a line, and would never find room, or because granted units were not used. A taker that reserves nothing, and is
-- behind all others, stands for that caller. The caller has locked the buckets.
-- p_until: until when, in microseconds of the limiter's time
create or replace function engine.stop_grants_ahead(p_buckets bigint[], p_until bigint) returns void
language plpgsql as $$
begin
  insert into sluice.taker as t (id, n, bucket, cost, alive_until, reserves)
  select '00000000-0000-0000-0000-000000000000', 9223372036854775807, b, 0, p_until, false from unnest(p_buckets) b
  on conflict (id, bucket) do update set alive_until = greatest(t.alive_until, excluded.alive_until);
end $$;
