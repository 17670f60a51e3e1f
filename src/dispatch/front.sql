-- The smallest virtual start in a list; null when nobody stands there.
create or replace function engine.front(p_class bigint, p_list bigint) returns bigint language plpgsql stable as $$
begin
  return (select t.vstart from (select floor from sluice.list where class = p_class and id = p_list order by v desc limit 1) l
          cross join lateral (select vstart from sluice.turn where class = p_class and list = p_list and vstart >= l.floor
                              order by vstart limit 1) t);
end $$;
