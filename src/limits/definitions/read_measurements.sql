-- Reads what the fleet has measured for limits (limits/samples.ts), each with its definition in force.
-- version, spec: of the definition
-- known: how many processes may call
-- age: the age that nearly all grants had at most when they were used, in microseconds; null: some host has used fewer
-- than 20
-- late: the greatest part of its newest grants that a process has received too late
-- late_of_all: the same part of the newest grants of all processes together
-- way: the longest answer less the shortest one, of all hosts, in microseconds; null: some host has fewer than 100
-- answers, or something is not measured
-- fixed: the margin stays as stated, because other programs, or other databases, count by this definition, too
-- read: when this was read, by the store's clock, in microseconds
-- $1: the limits
select d.name, d.version, d.spec, coalesce(m.known, 0)::integer as known, m.age::float8 as age,
  coalesce(m.late, 0)::float8 as late, coalesce(m.late_of_all, 0)::float8 as late_of_all, m.way::float8 as way,
  d.spec ? 'published' or coalesce((select s.stores > 1 from sluice.shared s limit 1), false) as fixed,
  sluice.now_us()::float8 as read
from unnest($1::text[]) n (name)
cross join lateral (select * from sluice.limit_def where name = n.name and key = '' order by version desc limit 1) d
cross join lateral (
  select sum(h.known) as known, max(h.late) as late, sum(h.lost) / nullif(sum(h.ages), 0) as late_of_all,
    case when min(h.ages) >= 20 then max(h.age) end as age,
    case when min(h.answers) >= 100 and bool_and(h.sound) then max(h.most) - min(h.least) end as way
  from (
    select count(*) as known, max(late) filter (where lives) as late, sum(ages) filter (where lives) as ages,
      sum(late * ages) filter (where lives) as lost,
      max(age) filter (where lives and ages > 0) as age, sum(answers) as answers, bool_and(sound) as sound,
      max(most) filter (where answers > 0) as most,
      min(least) filter (where answers > 0) as least
    from (select *, seen_at > sluice.now() - interval '1 minute' as lives from sluice.measured where name = n.name) o
    group by host) h) m
