-- Stops grants ahead of time (engine.grant_ahead) of these buckets. It is called for a caller that was denied and waits
-- in no line, because it would never find room, or because units that were granted ahead were not used. It inserts a
-- taker of the nil UUID, which reserves nothing and is behind all others. The caller has locked the buckets.
-- p_until: until when, in microseconds of the limiter's time
create or replace function engine.stop_grants_ahead(p_buckets bigint[], p_until bigint) returns void
language plpgsql as $$
begin
  insert into sluice.taker as t (id, n, bucket, cost, alive_until, reserves)
  select '00000000-0000-0000-0000-000000000000', 9223372036854775807, b, 0, p_until, false from unnest(p_buckets) b
  on conflict (id, bucket) do update set alive_until = greatest(t.alive_until, excluded.alive_until);
end $$;
