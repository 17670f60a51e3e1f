-- Returns those partitions of `engine.find_old_partitions` in which no job finished within its retention: they can be
-- dropped. Takes no locks, so a job of that day may finish just after the check.
create or replace function engine.find_droppable_partitions(p_done_ms bigint, p_failed_ms bigint, p_cap bigint)
returns table (parent text, name text, before timestamptz) language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_young boolean;
begin
  for parent, name, before in select p.parent, p.name, p.before from engine.find_old_partitions(p_done_ms,
    p_failed_ms, p_cap) p loop
    execute format('select exists (select 1 from sluice.%I where finished_at >= $1)', name) into v_young using before;
    if not v_young then return next; end if;
  end loop;
end $$;
