-- Records the definition that a source gives to a limit. Returns false when it changes nothing, or when code of a
-- process that started earlier gives it. In a rolling deploy, old processes may define a limit for the first time after
-- new ones started: so the process that started last wins, not the one that wrote last. A difference below 5 seconds
-- does not count, nor does a start in the future (the clock was set back). If two versions start in turns all the time,
-- the one whose definition first appeared later wins (engine.is_replaced_definition).
-- p_name: the limit.
-- p_source: code, stored or pinned.
-- p_spec, p_columns: the definition as JSON, and its columns of sluice.limit_def; p_spec null: the source gives none
-- any more.
-- p_by, p_reason: author and reason, for people.
-- p_age_us: microseconds since the process started.
create or replace function engine.propose_definition(
  p_name text, p_source text, p_spec jsonb, p_columns jsonb, p_by text, p_reason text, p_age_us bigint)
returns boolean language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_born timestamptz := v_now - make_interval(secs => p_age_us / 1e6);
  v_old sluice.limit_source;
begin
  if p_spec is null then
    delete from sluice.limit_source where name = p_name and source = p_source;
    return found;
  end if;
  select * into v_old from sluice.limit_source where name = p_name and source = p_source;
  if p_source = 'code' and v_old.spec is not null then
    if v_old.spec = p_spec and v_old.columns = p_columns then
      update sluice.limit_source set born_at = v_born
      where name = p_name and source = p_source and born_at not between v_born and v_now;
      return false;
    end if;
    if v_old.born_at between v_born + interval '5 seconds' and v_now then return false; end if;
    if engine.is_replaced_definition(p_name, p_spec, v_old.spec, v_now) then return false; end if;
  end if;
  insert into sluice.limit_source as s (name, source, spec, columns, by, reason, at, born_at)
  values (p_name, p_source, p_spec, p_columns, p_by, p_reason, v_now, case when p_source = 'code' then v_born end)
  on conflict (name, source) do update set spec = excluded.spec, columns = excluded.columns, by = excluded.by,
    reason = excluded.reason, at = excluded.at, born_at = excluded.born_at;
  return true;
end $$;
