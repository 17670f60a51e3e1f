-- Takes a place in each of these buckets for a grant, and renews the lease of the taker's process once a third of
-- p_taker.life has passed.
-- p_grant: the grant's id.
-- Returns how long the lease lasts, in microseconds. Null: the process was given up, and has to start again under
-- another id.
create or replace function engine.take_places(p_grant uuid, p_buckets bigint[], p_taker engine.taker, p_now bigint)
returns bigint
language plpgsql as $$
declare
  v_until bigint;
begin
  insert into sluice.holder (id, alive_until)
  select p_taker.holder, p_now + p_taker.life
    where not exists (select 1 from sluice.holder where id = p_taker.holder) on conflict do nothing;
  select alive_until into v_until from sluice.holder where id = p_taker.holder;
  if v_until > p_now and v_until < p_now + p_taker.life * 2 / 3 then
    update sluice.holder set alive_until = p_now + p_taker.life
      where id = p_taker.holder and alive_until > p_now returning alive_until into v_until;
  end if;
  if v_until is null or v_until <= p_now then return null; end if;
  insert into sluice.lease (id, bucket, holder) select p_grant, b, p_taker.holder from unnest(p_buckets) b;
  return v_until - p_now;
end $$;
