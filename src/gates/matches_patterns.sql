-- Returns true when a name matches one of these patterns (* stands for any text), or when p_patterns is null.
create or replace function engine.matches_patterns(p_patterns text[], p_name text)
returns boolean language plpgsql immutable as $$
begin
  if p_patterns is null then return true; end if;
  return exists (select 1 from unnest(p_patterns) p where p_name like replace(replace(p, '_', '\_'), '*', '%'));
end $$;
