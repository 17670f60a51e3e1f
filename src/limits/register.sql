-- Puts a definition of a limit in force as its next version, unless it is in force already. Returns whether it is in
-- force now, and whether this call made it so; neither when another process made a next version at the same moment.
-- $1 name, $2 spec (json), $3 drain, $4 weight, $5 room (one element per rule), $6 life of a grant in microseconds
with newest as (
  select l.version, l.spec from sluice.limit_def l where l.name = $1::text order by l.version desc limit 1
), made as (
  insert into sluice.limit_def (name, version, spec, drain, weight, room, grant_us, created_at)
  select $1::text, coalesce((select version from newest), 0) + 1, $2::jsonb, $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint, sluice.now()
  where not exists (select 1 from newest where spec = $2::jsonb)
  on conflict (name, version) do nothing
  returning name
)
select exists (select 1 from made) or exists (select 1 from newest where spec = $2::jsonb) as holds,
       exists (select 1 from made) as made
