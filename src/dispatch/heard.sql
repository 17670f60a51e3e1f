-- Which classes an arrival of this queue and task concerns: its own, and class 0 when that one is not known to exist.
create or replace function sluice.heard_v1(p_queue text, p_task text) returns table (class bigint) language sql stable as $$
  select sluice.hash64(p_queue || E'\x1f' || p_task)
  union all
  select 0 where not exists (select 1 from sluice.class c where c.id = sluice.hash64(p_queue || E'\x1f' || p_task))
$$;
