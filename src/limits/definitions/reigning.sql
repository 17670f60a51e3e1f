-- The definition of a limit that its sources give: what the highest says, over what else the code says (keys, costs).
-- Null when no code has named this limit. Version, time and author are for the caller to fill in.
create or replace function engine.reigning(p_name text) returns sluice.limit_def language sql stable as $$
  select jsonb_populate_record(null::sluice.limit_def, top.columns || jsonb_build_object(
    'name', p_name, 'source', top.source, 'spec', code.spec || top.spec))
  from sluice.limit_source code
  join lateral (select * from sluice.limit_source s where s.name = p_name
                order by array_position(array['pinned', 'stored', 'code'], s.source) limit 1) top on true
  where code.name = p_name and code.source = 'code'
$$;
