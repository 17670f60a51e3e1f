-- Takers that wait for a bucket before this one, and the units that they want (p_n: its place in the line, should it
-- not stand there just now; null: the end).
create or replace function engine.ahead(p_bucket bigint, p_line uuid, p_n bigint, p_now bigint, out takers bigint, out units bigint)
language plpgsql stable as $$
declare
  v_n bigint := coalesce((select n from sluice.taker where id = p_line), p_n);
begin
  select count(*), coalesce(sum(t.cost), 0) into takers, units from sluice.taker t
  where t.bucket = p_bucket and t.alive_until > p_now and (v_n is null or t.n < v_n);
end $$;
