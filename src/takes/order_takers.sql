-- Reads takers in the order of their line: those that wait already, then the others in the given order.
-- p_wants: as in engine.acquire_grants.
create or replace function engine.order_takers(p_wants jsonb) returns engine.taker[] language plpgsql as $$
declare
  v_takers engine.taker[] := '{}';
  v_taker engine.taker;
begin
  for v_taker in select * from jsonb_populate_recordset(null::engine.taker, p_wants) loop
    v_taker.ord := cardinality(v_takers) + 1;
    if v_taker.line is not null then
      v_taker.n := coalesce((select t.n from sluice.taker t where t.id = v_taker.line limit 1), v_taker.n); end if;
    v_takers := v_takers || v_taker;
  end loop;
  if cardinality(v_takers) = 1 then return v_takers; end if;
  return array(select t from unnest(v_takers) t order by t.n, t.ord);
end $$;
