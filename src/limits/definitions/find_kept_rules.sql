-- Returns for each rule of a changed definition the place of the same rule, with its pace, in another version; null: it
-- had none. Rules are the same if they count in the same way, however they are written. A quota may have had a wider
-- margin there: then earlier grants count by that, because they may have lived as long. As `sameRule` in
-- test/limits/rebuild.ts.
-- p_def: the changed definition; p_version: the other version of it.
create or replace function engine.find_kept_rules(p_def sluice.limit_def, p_version integer) returns integer[]
language plpgsql stable as $$
declare
  c_written constant text[] := '{rate,units,windowUs,classic}';
  v_new constant jsonb := (
    select jsonb_agg(r.rule - c_written order by r.i) from jsonb_array_elements(p_def.spec -> 'rules')
      with ordinality r (rule, i));
  v_old constant jsonb := (
    select jsonb_agg(r.rule - c_written order by r.i) from sluice.limit_def d, jsonb_array_elements(d.spec -> 'rules')
      with ordinality r (rule, i) where d.name = p_def.name and d.version = p_version);
  v_first integer;
  v_was jsonb;
  v_margin jsonb;
  v_kept integer[] := array_fill(null::integer, array[cardinality(p_def.kind)]);
begin
  for i in 0 .. cardinality(p_def.kind) - 1 loop
    v_first := i - (p_def.kind[i + 1] = 'pace')::integer;
    v_margin := v_new #> array[v_first::text, 'quota', 'marginUs'];
    for k in reverse coalesce(jsonb_array_length(v_old), 0) - 1 .. 0 loop
      v_was := v_old -> k;
      if v_was #> '{quota,marginUs}' > v_margin then
        v_was := jsonb_set(v_was || jsonb_build_object('spanUs', v_new -> v_first -> 'spanUs'), '{quota,marginUs}',
          v_margin);
      end if;
      continue when v_was <> v_new -> v_first;
      continue when v_was ->> 'kind' = 'rate' and (v_old -> (k + 1) ->> 'kind' = 'pace'
        or v_new -> (v_first + 1) ->> 'kind' = 'pace') and v_old -> (k + 1) is distinct from v_new -> (v_first + 1);
      v_kept[i + 1] := k + 1 + i - v_first;
    end loop;
  end loop;
  return v_kept;
end $$;
