-- Stores which events a service emits. $1: the service, '' if it has no name. $2: JSON, a list of objects with type,
-- version, description, schema. An event that was made without any of them, as on the command line, changes nothing.
insert into sluice.publisher as p (service, type, version, description, schema, seen_at)
select $1, d.type, d.version, d.description, d.schema, sluice.now()
from jsonb_to_recordset($2::jsonb) d (type text, version integer, description text, schema jsonb)
order by d.type
on conflict (service, type) do update
set version = excluded.version, description = excluded.description, schema = excluded.schema, seen_at = excluded.seen_at
where num_nonnulls(excluded.version, excluded.description, excluded.schema) > 0
