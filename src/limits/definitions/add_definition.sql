-- Returns a definition that holds together with that of older code: it has the rules of both, each of which is charged.
-- Rules that are the same are there once; of two bounds of concurrency the smaller one stays, because both count the
-- same jobs. A grant lives as long as the shorter life of both.
-- p_def: the definition of the newest code, perhaps with others added already
-- p_other: the source of the older one
create or replace function engine.add_definition(p_def sluice.limit_def, p_other sluice.limit_source)
returns sluice.limit_def language plpgsql immutable as $$
declare
  v_def sluice.limit_def := p_def;
  v_add constant sluice.limit_def := jsonb_populate_record(null::sluice.limit_def, p_other.columns);
  v_rules jsonb := p_def.spec -> 'rules';
  v_rule jsonb;
  v_at integer;
  v_is_new boolean;
begin
  v_def.own := coalesce(p_def.own, cardinality(p_def.kind));
  for i in 1 .. cardinality(v_add.kind) loop
    v_rule := p_other.spec -> 'rules' -> (i - 1);
    v_at := case when v_add.kind[i] = 'concurrency' then array_position(v_def.kind, 'concurrency') end;
    if v_at is not null and v_def.capacity[v_at] > v_add.capacity[i] then
      v_def.capacity[v_at] := v_add.capacity[i];
      v_rules := jsonb_set(v_rules, array[(v_at - 1)::text], v_rule);
    end if;
    -- A pace belongs to the rule before it.
    continue when v_add.kind[i] = 'pace' and not v_is_new;
    v_is_new := v_at is null and (v_add.kind[i] = 'pace' or not v_rules @> jsonb_build_array(v_rule));
    continue when not v_is_new;
    v_rules := v_rules || (v_rule || jsonb_build_object('classic', p_other.spec -> 'classic'));
    if v_def.margin is not null or v_add.margin is not null then
      v_def.margin := coalesce(v_def.margin, array_fill(0::bigint, array[cardinality(v_def.kind)]))
                      || coalesce(v_add.margin[i], 0);
    end if;
    v_def.kind := v_def.kind || v_add.kind[i]; v_def.drain := v_def.drain || v_add.drain[i];
    v_def.weight := v_def.weight || v_add.weight[i]; v_def.capacity := v_def.capacity || v_add.capacity[i];
    v_def.part_us := v_def.part_us || v_add.part_us[i]; v_def.span := v_def.span || v_add.span[i];
  end loop;
  v_def.grant_us := least(p_def.grant_us, v_add.grant_us);
  v_def.spec := p_def.spec || jsonb_build_object(
    'rules', v_rules, 'grantUs', v_def.grant_us,
    'transitUs', least((p_def.spec ->> 'transitUs')::bigint, (p_other.spec ->> 'transitUs')::bigint),
    'beside', coalesce(p_def.spec -> 'beside', '[]')
              || jsonb_build_array(jsonb_build_object('numbers', p_other.spec -> 'numbers', 'by', p_other."by")));
  return v_def;
end $$;
