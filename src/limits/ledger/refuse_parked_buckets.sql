-- Raises SLW04 when one of these buckets is parked: a taker must know it, because waiting does not help.
create or replace function engine.refuse_parked_buckets(p_buckets bigint[]) returns void language plpgsql as $$
declare
  v_name text := (
    select b.name || case when b.key = '' then '' else ':' || b.key end from sluice.bucket b
    where b.id = any (p_buckets) and b.parked limit 1);
begin
  if v_name is null then return; end if;
  raise exception '%', v_name using errcode = 'SLW04';
end $$;
