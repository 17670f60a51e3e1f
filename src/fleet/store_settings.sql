-- Stores settings that hold for the whole fleet; the latest call wins. Returns the names of the settings that changed.
-- $1 names
-- $2 values, one for each name, as JSON
insert into sluice.setting (name, value, at)
select u.name, u.value::jsonb, n.now from (select sluice.now() as now) n, unnest($1::text[], $2::text[]) u (name, value)
order by u.name
on conflict (name) do update set value = excluded.value, at = excluded.at where setting.value <> excluded.value
returning name
