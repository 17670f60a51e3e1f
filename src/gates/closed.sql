-- The gates that hold back jobs of this queue and task, the one that opens last first (until; null: not by time), which is
-- when none of them does at the earliest.
create or replace function engine.closed(p_queue text, p_task text, p_now timestamptz)
returns table (gate text, reason text, until timestamptz, by text, since timestamptz) language plpgsql stable as $$
begin
  return query
  select g.name, g.reason, engine.opening(g, p_now), g.by, g.created_at from sluice.gate g
  where engine.meets(g, p_queue, p_task, p_now) and engine.shut(g, p_now)
  order by 3 desc nulls first, 1;
end $$;
