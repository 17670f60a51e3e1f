-- Notifies the takers that wait for these buckets that units were given back.
create or replace function engine.notify_takers(p_buckets bigint[], p_now bigint) returns void language plpgsql as $$
begin
  if not exists (select 1 from sluice.taker where alive_until > p_now) then return; end if;
  perform pg_notify('sluice.take', b::text) from unnest(p_buckets) b
  where exists (select 1 from sluice.taker where bucket = b and alive_until > p_now);
end $$;
