-- Counts a failure of the vendor in each of these scopes, and returns how many are in a row. The specification is
-- test/limits/circuit.ts. A transaction that calls it takes no other locks. It forgets up to 100 scopes that are long
-- over.
-- p_scopes: hashes of what failed (takes/circuit.ts).
-- p_who: in each, the job or key that failed.
-- p_fine_us: in each, how long ago the calling process had a request served; null: it does not know of one.
-- p_apart_us: failures further apart are not in a row.
-- n, who: by position, failures in a row, and how many jobs or keys they are of (at most 8).
create or replace function engine.count_failures(
  p_scopes bigint[], p_who bigint[], p_fine_us bigint[], p_apart_us bigint, p_cap bigint,
  out n integer[], out who integer[])
language plpgsql as $$
declare
  v_in record;
  v_n integer;
  v_who integer;
  v_now constant bigint := engine.limiter_now_us(p_cap);
begin
  for v_in in
    select * from unnest(p_scopes, p_who, p_fine_us) with ordinality u (scope, who, fine_us, i) order by u.scope
  loop
    insert into sluice.failure as f (scope, at, n, who) values (v_in.scope, v_now, 1, array[v_in.who])
    on conflict (scope) do update set
      at = greatest(f.at, v_now),
      n = case when f.at < greatest(v_now - v_in.fine_us, v_now - p_apart_us) then 1 else least(1000, f.n + 1) end,
      who = case when f.at < greatest(v_now - v_in.fine_us, v_now - p_apart_us) then array[v_in.who]
              when v_in.who = any (f.who) or cardinality(f.who) >= 8 then f.who else f.who || v_in.who end
    returning f.n, cardinality(f.who) into v_n, v_who;
    n[v_in.i] := v_n; who[v_in.i] := v_who;
  end loop;
  delete from sluice.failure f where f.scope = any (array(
    select o.scope from sluice.failure o where o.at < v_now - 7200000000 order by o.at limit 100
    for update skip locked));
end $$;
