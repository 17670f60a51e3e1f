-- What each bucket allows at p_now: the newest ledger row, drained since, against the definition in force.
-- avail = units free now; next = when one unit is free (2^53 - 1: not by time); the arithmetic is that of
-- limits/decide.ts, in integers. p_further: for one more request of a job that runs, to which concurrency does not apply.
-- A bucket whose limit is not defined has no room: closed, not open. Call under lock_v1 to act on the answer.
create or replace function sluice.room_v1(p_buckets bigint[], p_now bigint, p_further boolean default false)
returns table (ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], slots integer[], version integer, drain bigint[],
               weight bigint[], slot bigint[], hold bigint, avail bigint, next bigint, period bigint, slack bigint)
language sql stable as $$
  select o.ord::integer, o.bucket, coalesce(g.n, 0), t.at, r.debt, w.slots, d.version, d.drain, d.weight, d.slot, coalesce(g.hold, 0),
         case when d.version is null or coalesce(g.hold, 0) > t.at then 0 else r.avail end,
         case when d.version is null then t.at + 1000000 else greatest(t.at, r.next, coalesce(g.hold, 0)) end,
         coalesce(r.period, 1000000), coalesce(r.slack, 0)
  from unnest(p_buckets) with ordinality o (bucket, ord)
  left join sluice.bucket b on b.id = o.bucket
  left join lateral (
    select l as def, l.version, l.drain, l.weight, l.room, l.slot, l.span from sluice.limit_def l
    where l.name = b.name order by l.version desc limit 1) d on true
  left join lateral (
    select l.n, l.at, l.debt, l.slots, l.version, l.hold from sluice.ledger l
    where l.bucket = o.bucket order by l.at desc, l.n desc limit 1) g on true
  cross join lateral (select greatest(p_now, coalesce(g.at, p_now)) as at) t
  cross join lateral (select case when g.version <> d.version then sluice.rebuild_v1(b.id, g.version, g.debt, g.at, d.def) end as made) c
  cross join lateral (select case when 0 < any (d.slot)
    then sluice.aged_v1(case when g.version <> d.version then (c.made).slots else g.slots end, d.slot, g.at, t.at) end as slots) w
  left join lateral (
    select array_agg(x.debt order by x.i) as debt,
           greatest(0, coalesce(min((x.room * x.weight - x.debt) / x.weight) filter (where x.counts), 2147483647)) as avail,
           max(case when x.debt + x.weight <= x.room * x.weight then t.at
                    when x.drain = 0 then 9007199254740991
                    when x.slot > 0 then sluice.freed_v1(w.slots[x.i:x.i], x.slot, t.at, x.room)
                    else t.at + (x.debt + x.weight - x.room * x.weight + x.drain - 1) / x.drain end) filter (where x.counts) as next,
           max(case when x.slot > 0 then x.span / x.room + 1 else x.weight / nullif(x.drain, 0) + 1 end) as period,
           min(case when x.slot > 0 then 0 else (x.room - 1) * (x.weight / nullif(x.drain, 0)) / 2 end) as slack
    from (
      select i::integer as i, u.drain, u.weight, u.room, u.slot, u.span, not (p_further and u.drain = 0) as counts,
             case when u.slot > 0 then (select sum(s) from unnest(w.slots[i:i]) s)
                  else coalesce(sluice.drained_v1(case when g.version <> d.version then (c.made).debt[i] else g.debt[i] end,
                                                  u.drain, t.at - g.at), 0) end as debt
      from unnest(d.drain, d.weight, d.room, d.slot, d.span) with ordinality u (drain, weight, room, slot, span, i)
    ) x
  ) r on true
$$;
