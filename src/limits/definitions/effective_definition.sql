-- Returns the definition of a limit that its sources give: the highest source (pinned, then stored, then code), merged
-- over what else the code gives (keys, costs). Null when no code has defined this limit. The caller fills in version,
-- time and author.
create or replace function engine.effective_definition(p_name text) returns sluice.limit_def language sql stable as $$
  select jsonb_populate_record(null::sluice.limit_def, top.columns || jsonb_build_object(
    'name', p_name, 'source', top.source, 'spec', code.spec || top.spec))
  from sluice.limit_source code
  join lateral (select * from sluice.limit_source s where s.name = p_name
                order by array_position(array['pinned', 'stored', 'code'], s.source) limit 1) top on true
  where code.name = p_name and code.source = 'code'
$$;
