-- Notifies the live workers of an event that they report (report/events.ts): one that only the store sees, or an act of
-- one process that all log. Nothing depends on a worker's receiving it.
-- p_kind: exhausted, rescued, limit or paused
-- p_event: what happened, as the TypeScript that reads it expects. Longer texts are cut, because a notification has at
-- most 8,000 bytes.
create or replace function engine.notify_event(p_kind text, p_event jsonb) returns void language plpgsql as $$
declare
  v_event text := jsonb_build_object('kind', p_kind, 'event', p_event);
begin
  if octet_length(v_event) > 7900 then
    v_event := jsonb_build_object('kind', p_kind, 'event', p_event - 'error');
  end if;
  if octet_length(v_event) <= 7900 then perform pg_notify('sluice.event', v_event); end if;
end $$;
