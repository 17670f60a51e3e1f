-- A process that takes a place of a bucket for a grant: says that it lives for p_life, when a third of that is over.
-- Answers for how long it does; null: it was given up, and has to begin anew under another id.
create or replace function engine.lease(p_grant uuid, p_bucket bigint, p_holder uuid, p_life bigint, p_now bigint)
returns bigint
language plpgsql as $$
declare
  v_until bigint;
begin
  insert into sluice.holder (id, alive_until)
  select p_holder, p_now + p_life
    where not exists (select 1 from sluice.holder where id = p_holder) on conflict do nothing;
  select alive_until into v_until from sluice.holder where id = p_holder;
  if v_until > p_now and v_until < p_now + p_life * 2 / 3 then
    update sluice.holder set alive_until = p_now + p_life
      where id = p_holder and alive_until > p_now returning alive_until into v_until;
  end if;
  if v_until is null or v_until <= p_now then return null; end if;
  insert into sluice.lease (id, bucket, holder) values (p_grant, p_bucket, p_holder);
  return v_until - p_now;
end $$;
