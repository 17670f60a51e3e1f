-- Returns the definition that follows from a limit's sources. The numbers are the operator's (pinned before stored, and
-- of both the key's own before those of all keys), else those that the fleet has found, if the newest code is adaptive.
-- Without these, all definitions in the code of live processes hold together, because each process relies on its own.
-- Everything but numbers (keys, costs) comes from the newest code, so numbers in another unit than the code's (money,
-- or another currency) do not hold. If the fleet has measured the margin for just these numbers, and they are those of
-- all keys, the rules count with that margin. Null when no code has defined this limit. The caller fills in version,
-- time and author.
-- p_key: a key; '': all keys that have no numbers of their own.
create or replace function engine.effective_definition(p_name text, p_key text) returns sluice.limit_def
language plpgsql stable as $$
declare
  c_currency constant text := ' ([A-Z]{3})/';  -- in the numbers: `50 USD/month`
  v_code sluice.limit_source[];
  v_top sluice.limit_source;
  v_measured sluice.limit_source;
  v_def sluice.limit_def;
begin
  v_code := array(
    select s from sluice.limit_source s
    where s.name = p_name and s.source = 'code' and s.gone_at is null order by s.at desc, s.digest);
  if v_code = '{}' then return null; end if;
  select * into v_top from sluice.limit_source s
  where s.name = p_name and s.key in ('', p_key) and s.source in ('pinned', 'stored', 'found')
    and (s.source <> 'found' or (v_code[1]).spec ? 'adaptive')
    and (not s.spec -> 'numbers' ?| '{rate,window,quota}'
      or substring(s.spec ->> 'numbers' from c_currency)
        is not distinct from substring((v_code[1]).spec ->> 'numbers' from c_currency))
  order by array_position(array['pinned', 'stored', 'found'], s.source), s.key desc limit 1;
  v_def := jsonb_populate_record(
    null::sluice.limit_def, coalesce(v_top.columns, (v_code[1]).columns) || jsonb_build_object(
      'name', p_name, 'key', p_key, 'source', coalesce(v_top.source, 'code'),
      'spec', (v_code[1]).spec || coalesce(v_top.spec, '{}')));
  if v_top.name is null then
    for i in 2 .. cardinality(v_code) loop v_def := engine.add_definition(v_def, v_code[i]); end loop;
  end if;
  select * into v_measured from sluice.limit_source s
  where s.name = p_name and coalesce(v_top.key, '') = '' and s.source = 'measured'
    and s.spec -> 'numbers' = v_def.spec -> 'numbers';
  if v_measured.name is null or v_def.spec ?| '{beside,published}' then return v_def; end if;
  v_def := jsonb_populate_record(v_def, v_measured.columns);
  v_def.spec := v_def.spec || v_measured.spec || '{"measured": true}';
  return v_def;
end $$;
