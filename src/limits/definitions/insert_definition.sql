-- Inserts the definition that the sources of a limit give, as its next version. The caller has locked all its buckets.
-- p_by, p_reason: author and reason, for people.
create or replace function engine.insert_definition(p_name text, p_by text, p_reason text)
returns void language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_def sluice.limit_def := engine.effective_definition(p_name);
begin
  -- Raises an error if the server does not know its zone.
  perform engine.zone_offset_s(r -> 'quota' ->> 'zone', 0)
    from jsonb_array_elements(v_def.spec -> 'rules') r where r ? 'quota';
  insert into sluice.limit_def (name, version, spec, kind, drain, weight, room, slot, span, margin, grant_us,
    created_at, source, by, reason, label, members, lend_us, own)
  values (p_name, coalesce((select max(l.version) from sluice.limit_def l where l.name = p_name), 0) + 1, v_def.spec,
    v_def.kind, v_def.drain, v_def.weight, v_def.room, v_def.slot, v_def.span, v_def.margin, v_def.grant_us, v_now,
    v_def.source, p_by, p_reason, v_def.spec ->> 'label',
    (select array_agg(m order by o) from jsonb_array_elements_text(v_def.spec -> 'pool') with ordinality m (m, o)),
    v_def.lend_us, v_def.own);
end $$;
