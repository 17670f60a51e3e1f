-- Tells idle workers of these queues that there is something new. No NOTIFY when nobody idles: it costs a busy
-- sender most of its throughput.
create or replace function sluice.wake_v1(p_queues text[]) returns void language plpgsql as $$
begin
  if exists (select 1 from sluice.idle i where i.queues is null or i.queues && p_queues) then
    perform pg_notify('sluice.wake', array_to_string(array(select distinct q from unnest(p_queues) q), ','));
  end if;
end $$;
