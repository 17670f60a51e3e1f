-- Returns what has happened to the store.
-- n: its epoch.
-- identified: whether the server's identity is known.
-- since_ms: when the epoch began, in Unix ms; null: it is the first.
-- names, until_ms: the limits that are still closed since then, and when the last of them opens.
-- longer: the limits that look back for longer than the hour for which they were closed.
-- stepped_us, stepped_ms: size of the last step of the store's clock, and how long ago it was.
create or replace function engine.describe_store_loss(out n bigint, out identified boolean, out since_ms float8,
  out names text[],
  out until_ms float8,
  out longer text[], out stepped_us bigint, out stepped_ms bigint) language plpgsql set jit = off as $$
declare
  v_epoch sluice.epoch;
  v_now bigint := engine.limiter_now_us();
  v_wall timestamptz := engine.store_time(v_now);
begin
  select * into v_epoch from sluice.epoch;
  n := v_epoch.n;
  identified := v_epoch.identity is not null;
  since_ms := engine.unix_ms(engine.store_time(v_epoch.closed_us));
  select array_agg(distinct l.name order by l.name) filter (where l.at > v_now),
         engine.unix_ms(engine.store_time(max(l.at) filter (where l.at > v_now))),
         array_agg(distinct l.name order by l.name)
           filter (where v_now < v_epoch.closed_us + l.span and l.span > 3600000000)
  into names, until_ms, longer
  from (select d.name, engine.limit_reopens_at(v_epoch.closed_us, d.kind, d.span) as at,
    (select max(s) from unnest(d.span) s) as span
        from sluice.limit_def d where strpos(d.name, '/') = 0 and not exists (
          select 1 from sluice.limit_def x where x.name = d.name and x.key = d.key and x.version > d.version)) l;
  stepped_us := v_epoch.stepped_us;
  stepped_ms := (extract(epoch from v_wall - v_epoch.stepped_at) * 1000)::bigint;
end $$;
