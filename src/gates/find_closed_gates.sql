-- Returns the gates that hold back jobs of this queue and task now. The first row is the gate that opens last: its time
-- (until; null: not by time) is the earliest at which no gate holds the jobs back.
create or replace function engine.find_closed_gates(p_queue text, p_task text, p_now timestamptz)
returns table (gate text, reason text, until timestamptz, by text, since timestamptz) language plpgsql stable as $$
begin
  return query
  select g.name, g.reason, engine.find_gate_opening(g, p_now), g.by, g.created_at from sluice.gate g
  where engine.gate_applies_to(g, p_queue, p_task, p_now) and engine.is_gate_closed(g, p_now)
  order by 3 desc nulls first, 1;
end $$;
