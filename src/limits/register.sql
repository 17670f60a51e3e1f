-- Puts a definition of a limit in force as its next version, unless it is in force already.
-- $1 name, $2 spec (json), $3 drain, $4 weight, $5 room (one element per rule), $6 life of a grant in microseconds
insert into sluice.limit_def (name, version, spec, drain, weight, room, grant_us, created_at)
select $1::text, coalesce(max(d.version), 0) + 1, $2::jsonb, $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint, sluice.now()
from sluice.limit_def d where d.name = $1::text
having not exists (
  select 1 from (select l.spec from sluice.limit_def l where l.name = $1::text order by l.version desc limit 1) newest
  where newest.spec = $2::jsonb)
on conflict (name, version) do nothing
