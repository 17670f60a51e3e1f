-- Reads why buckets grant nothing now: their limit is not defined, a pause, a hold and its cause (null: not a vendor's
-- answer), no free units, no free place. parked: claims leave the bucket out, so no other cause is read.
-- free_in_ms: in how many milliseconds the next unit is free, if there is none
-- per_minute: the units that its limit grants evenly; null if it grants them otherwise (a window, a quota), or if it is
-- a pool, whose members share the jobs
-- $1: names as in a job's buckets (`crm:a1`, `total`, `sender*`)
with given as (
  select u.o, u.way, (substring(u.way from '^[^:*]+')) as name, sluice.hash64(u.way) as id
  from unnest($1::text[]) with ordinality u (way, o)
), clock as (
  select engine.limiter_now_us() as now_us, e.clock_offset_us from sluice.epoch e limit 1
)
select g.way, d.version is not null as defined,
       (select json_build_object('reason', p.reason, 'by', p.by,
          'sinceMs', engine.unix_ms(p.created_at))
        from sluice.limit_pause p
        where p.name = g.name and p.key in ('', substr(g.way, length(g.name) + 2)) order by p.key limit 1) as paused,
       b.parked is not null as parked,
       case when r.hold > c.now_us then ((r.hold - c.clock_offset_us) / 1000)::float8 end as held_ms,
       (select f.cause from sluice.refusal f where f.bucket = g.id) as cause,
       b.id is not null and r.units < 1 as full, b.id is not null and r.places < 1 as crowded,
       (greatest(0, r.next - c.now_us) / 1000)::float8 as free_in_ms,
       (select case when bool_and(x ->> 'kind' in ('rate', 'pace')) then
                 min((x ->> 'units')::float8 * 60000000 / (x ->> 'windowUs')::float8) end
        from jsonb_array_elements(d.spec -> 'rules') x
        where d.members is null and (x ->> 'windowUs')::float8 > 0) as per_minute
from given g cross join clock c
join unnest(engine.bucket_room(array(select id from given order by o), (select now_us from clock))) r on r.ord = g.o
left join sluice.bucket b on b.id = g.id
left join lateral (
  select l.version, l.members, l.spec from sluice.limit_def l
  where l.name = g.name and l.key = coalesce(b.def_key, '') order by l.version desc limit 1) d on true
order by g.o
