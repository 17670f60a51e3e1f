-- Records which quotas of these buckets have reached a share at which their limit wants an alarm (`alarmAt`), and
-- returns those that this call recorded, as JSON: of each quota the greatest share. A share is reached once in each
-- period, and once more if the quota was changed. Without `alarmAt` it is 0.8, for quotas of a day or longer that hold
-- at least 100 units. The caller has the lock of usage.
create or replace function engine.raise_budgets(p_buckets bigint[], out raised json)
language plpgsql set enable_seqscan = off set jit = off as $$
begin
  if not exists (select 1 from sluice.limit_def d where d.margin is not null) then return; end if;
  with state as (
    select b.name, b.key, l.at, l.quota, d.spec, d.capacity, d.kind
    from unnest(p_buckets) u (id) join sluice.bucket b on b.id = u.id and strpos(b.name, '/') = 0
    cross join lateral (
      select o.* from sluice.ledger o where o.bucket = b.id order by o.at desc, o.n desc limit 1) l
    join sluice.limit_def d on d.name = b.name and d.version = l.version
    where l.quota is not null
  ), reached as (
    select s.name, s.key, r.rule ->> 'rate' as rate, a.share::numeric, s.quota[i][2] as starts, s.quota[i][3] as ends,
           s.quota[i][5] as used, s.capacity[i] as most, s.spec ->> 'currency' as currency,
           s.at - engine.clock_offset_at(s.at) as at
    from state s cross join generate_subscripts(s.kind, 1) i
    cross join lateral (select s.spec -> 'rules' -> (i - 1) as rule) r
    cross join lateral jsonb_array_elements_text(coalesce(s.spec -> 'alarmAt',
      case when (r.rule ->> 'windowUs')::bigint >= 79200000000 and s.capacity[i] >= 100 then jsonb '[0.8]'
           else jsonb '[]' end)) a (share)
    where s.kind[i] = 'quota' and s.quota[i][5] >= a.share::numeric * s.capacity[i]
  ), fresh as (
    insert into sluice.budget as b (name, key, rate, share, starts, ends, at)
    select distinct on (r.name, r.key, r.rate, r.share) r.name, r.key, r.rate, r.share, r.starts, r.ends, r.at
    from reached r
    on conflict (name, key, rate, share) do update
      set starts = excluded.starts, ends = excluded.ends, at = excluded.at where b.starts <> excluded.starts
    returning name, key, rate, share
  )
  select json_agg(g) into raised from (
    select distinct on (r.name, r.key, r.rate) r.name as "limit", r.key, r.rate, r.share::float8, r.starts, r.ends,
           r.used, r.most, r.currency, r.at
    from reached r join fresh using (name, key, rate, share) order by r.name, r.key, r.rate, r.share desc) g;
end $$;
