-- What each bucket allows at p_now: the newest ledger row, drained since, against the definition in force.
-- avail = units free now; next = when one unit is free; the arithmetic is that of limits/decide.ts, in integers.
-- A bucket whose limit is not defined has no room: closed, not open. Call under lock_v1 to act on the answer.
create or replace function sluice.room_v1(p_buckets bigint[], p_now bigint)
returns table (ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], version integer,
               weight bigint[], hold bigint, avail bigint, next bigint, period bigint, slack bigint)
language sql stable as $$
  select o.ord::integer, o.bucket, coalesce(g.n, 0), t.at, r.debt, d.version, d.weight, coalesce(g.hold, 0),
         case when d.version is null or coalesce(g.hold, 0) > t.at then 0 else r.avail end,
         case when d.version is null then t.at + 1000000 else greatest(r.next, coalesce(g.hold, 0)) end,
         coalesce(r.period, 1000000), coalesce(r.slack, 0)
  from unnest(p_buckets) with ordinality o (bucket, ord)
  left join sluice.bucket b on b.id = o.bucket
  left join lateral (
    select l.version, l.drain, l.weight, l.room from sluice.limit_def l
    where l.name = b.name order by l.version desc limit 1) d on true
  left join lateral (
    select l.n, l.at, l.debt, l.version, l.hold from sluice.ledger l
    where l.bucket = o.bucket order by l.n desc limit 1) g on true
  cross join lateral (select greatest(p_now, coalesce(g.at, p_now)) as at) t
  left join lateral (
    select array_agg(x.debt order by x.i) as debt,
           greatest(0, min((x.room * x.weight - x.debt) / x.weight)) as avail,
           max(t.at + greatest(0, (x.debt + x.weight - x.room * x.weight + x.drain - 1) / x.drain)) as next,
           max(x.weight / x.drain + 1) as period,
           min((x.room - 1) * (x.weight / x.drain) / 2) as slack
    from (
      select i, u.drain, u.weight, u.room,
             coalesce(sluice.drained_v1(c.debt, u.drain, t.at - g.at), 0) as debt
      from unnest(d.drain, d.weight, d.room) with ordinality u (drain, weight, room, i)
      cross join lateral (
        select case when g.version = d.version then g.debt[i]
                    else sluice.redebt_v1(b.name, g.version, g.debt, u.drain, u.weight) end as debt) c
    ) x
  ) r on true
$$;
