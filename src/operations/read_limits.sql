-- Reads the limits in force, with the present definition of each source, and their keys that are paused, that the
-- vendor has refused, or that others have used in the last 24 hours (the newest 100 each).
-- key_numbers: the numbers that an operator has defined for single keys; pinned ones, where a key has both
-- $1: only this limit; null: all
-- $2: the definition of this key; '': of all keys that have none of their own
select d.name, d.version, d.spec, d.source, d.by, d.reason, engine.unix_ms(d.created_at) as at_ms,
       (select json_object_agg(s.source, json_build_object(
          'numbers', s.spec -> 'numbers', 'by', s.by, 'reason', s.reason,
          'atMs', engine.unix_ms(s.at)))
        from (
          select distinct on (o.source) o.* from sluice.limit_source o
          where o.name = d.name and o.key in ('', $2) and o.source <> 'measured' and o.gone_at is null
          order by o.source, o.key desc, o.at desc) s) as sources,
       (select json_agg(json_build_object('key', s.key, 'source', s.source, 'numbers', s.spec -> 'numbers',
          'by', s.by, 'reason', s.reason, 'atMs', engine.unix_ms(s.at)) order by s.key)
        from (
          select distinct on (o.key) o.* from sluice.limit_source o where o.name = d.name and o.key <> ''
          order by o.key, o.source = 'pinned' desc) s) as key_numbers,
       (select json_agg(nullif(p.key, '') order by p.key) from sluice.limit_pause p where p.name = d.name) as paused,
       (select json_agg(json_build_object('key', f.key, 'cause', f.cause, 'answer', f.answer, 'count', f.n,
          'sinceMs', ((f.since - e.clock_offset_us) / 1000)::float8,
          'atMs', ((f.at - e.clock_offset_us) / 1000)::float8,
          'untilMs', ((f.hold - e.clock_offset_us) / 1000)::float8) order by f.at desc)
        from sluice.epoch e, lateral (
          select nullif(b.key, '') as key, r.*, l.hold
          from sluice.bucket b join sluice.refusal r on r.bucket = b.id
          join lateral (
            select k.hold from sluice.ledger k where k.bucket = b.id order by k.at desc, k.n desc limit 1) l on true
          where b.name = d.name order by r.at desc limit 100) f) as refusals,
       (select json_agg(json_build_object('key', f.key, 'units', f.units,
          'atMs', ((f.at - e.clock_offset_us) / 1000)::float8) order by f.at desc)
        from sluice.epoch e, lateral (
          select nullif(b.key, '') as key, sum(l.units)::float8 as units, max(l.at) as at
          from sluice.ledger l join sluice.bucket b on b.id = l.bucket
          where l.cause = 'others' and b.name = d.name
            and l.at > engine.limiter_now_us() - 86400000000
          group by b.key order by max(l.at) desc limit 100) f) as others
from (
  select distinct on (name) * from sluice.limit_def
  where (($1::text is null and strpos(name, '/') = 0) or name = $1) and key in ('', $2)
  order by name, key desc, version desc) d
order by d.name
