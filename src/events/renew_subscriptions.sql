-- Records that a process has these handlers. Returns the handlers of its service that it lacks and that another process
-- has had within 15 s.
create or replace function engine.renew_subscriptions(p_service text, p_handlers text[])
returns setof text language plpgsql set jit = off as $$
declare
  v_now timestamptz := sluice.now();
begin
  update sluice.subscription s set seen_at = v_now
  where (s.service, s.handler) in (
    select o.service, o.handler from sluice.subscription o
    where o.service = p_service and o.handler = any (p_handlers) and o.seen_at < v_now - interval '4 s'
    for update skip locked);
  return query select s.handler from sluice.subscription s
    where s.service = p_service and s.handler <> all (p_handlers) and s.seen_at > v_now - interval '15 s'
    order by 1;
end $$;
