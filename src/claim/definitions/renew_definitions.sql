-- Records that a live process has these definitions in its code. Ends the definitions of the same limits that no live
-- process has had for 15 s, while another one is alive. Each process calls it every 5 s while it works, sends or takes.
-- While a worker is registered and no process has recorded any definition without a gap for 15 s, the store was away,
-- or its clock was set, and processes that live could not record theirs: then a definition ends after an hour only.
-- It skips rows that other processes have locked, because those processes renew them.
-- Returns, as JSON: `missing`, limits whose definition is not recorded, because it was ended meanwhile; `others`, for
-- each limit that other code defines with other rules: its name, those numbers, and by whom they were recorded.
-- p_names, p_digests: the definitions
create or replace function engine.renew_definitions(p_names text[], p_digests text[])
returns jsonb language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now constant timestamptz := sluice.now();
  v_fresh constant timestamptz := v_now - interval '5 seconds';
  v_alive constant timestamptz := v_now - interval '15 seconds';
  v_keep constant interval := case when exists (
    select 1 from sluice.limit_source s
    where s.source = 'code' and s.gone_at is null and s.seen_at between v_alive and v_now and s.steady_at <= v_alive)
    or not exists (select 1 from sluice.worker w where w.started_at < v_alive)
    then interval '15 seconds' else interval '1 hour' end;
  v_names text[];
  v_gone text[];
begin
  -- The buckets beside a limit with a share (`crm/`) are defined with it, under its digest.
  v_names := array(
    select distinct s.name from sluice.limit_source s
    where s.source = 'code' and s.gone_at is null and split_part(s.name, '/', 1) = any (p_names));
  v_gone := array(
    select s.name from sluice.limit_source s
    where s.name = any (v_names) and s.source = 'code' and s.gone_at is null
      and s.seen_at < v_now - greatest(s.keep, v_keep)
      -- Limits with the same numbers have the same digest.
      and (split_part(s.name, '/', 1), s.digest) not in (select * from unnest(p_names, p_digests)));
  -- This lock comes before that of any row, because a new definition locks in this order.
  if v_gone <> '{}' then perform pg_advisory_xact_lock(1397511523, -7); end if;  -- lock: definitions
  -- One process of many writes; the others find it done.
  update sluice.limit_source set seen_at = v_now,
    steady_at = case when seen_at between v_alive and v_now then steady_at else v_now end
  where ctid = any (array(
    select s.ctid from sluice.limit_source s
    where s.name = any (v_names) and s.source = 'code' and s.gone_at is null and s.seen_at not between v_fresh and v_now
      and (split_part(s.name, '/', 1), s.digest) in (select * from unnest(p_names, p_digests))
    for update skip locked));
  if v_gone <> '{}' then
    update sluice.limit_source s set gone_at = v_now where ctid = any (array(
      select s.ctid from sluice.limit_source s
      where s.name = any (v_gone) and s.source = 'code' and s.gone_at is null
        and s.seen_at < v_now - greatest(s.keep, v_keep)
        and exists (
          select 1 from sluice.limit_source o
          where o.name = s.name and o.source = 'code' and o.gone_at is null and o.seen_at >= v_alive)
      for update skip locked));
    perform engine.apply_definition(n, s.by, 'no process has the other definition in its code any more')
    from unnest(v_gone) n cross join lateral (
      select by from sluice.limit_source where name = n and source = 'code' and gone_at is null
      order by at desc limit 1) s;
    delete from sluice.limit_source where source = 'code' and gone_at < v_now - interval '1 day';
  end if;
  return (
    select jsonb_build_object(
      'missing', coalesce(jsonb_agg(distinct u.name) filter (where m.name is null), '[]'),
      'others', coalesce(jsonb_agg(jsonb_build_object('name', u.name, 'numbers', o.spec -> 'numbers', 'by', o.by))
                         filter (where o.spec -> 'rules' <> m.spec -> 'rules'), '[]'))
    from unnest(p_names, p_digests) u (name, digest)
    left join sluice.limit_source m
      on m.name = u.name and m.source = 'code' and m.digest = u.digest and m.gone_at is null
    left join sluice.limit_source o
      on o.name = u.name and o.source = 'code' and o.digest <> u.digest and o.gone_at is null);
end $$;
