-- Cuts lanes off before the first job that costs more than older code allows (`engine.read_older_capacities`). Such a
-- job waits with those behind it, and keeps no units from other lanes meanwhile.
-- p_read, p_dead: as `engine.read_costed_jobs` returns them (n, dead)
-- p_n, p_at, p_costs, p_from, p_uses: as in `engine.divide_by_turns`
-- p_caps: for each bucket what older code allows; null: no older code
-- n: how many jobs each lane has then
-- dear: for each lane the bucket in which older code does not allow the job after these; 0: none
create or replace function engine.cut_before_dear_jobs(
  p_read bigint[], p_dead boolean[], p_n bigint[], p_at integer[], p_costs integer[], p_from integer[],
  p_uses integer[], p_caps bigint[], out n bigint[], out dear integer[])
language plpgsql immutable as $$
declare
  v_before integer := 0;  -- how many jobs the lanes before this one have
  v_width integer;
  v_cut record;
begin
  n := p_n;
  dear := array_fill(0, array[cardinality(p_n)]);
  if p_caps is null then return; end if;
  for i in 1 .. cardinality(p_n) loop
    continue when p_read[i] is null;
    v_width := p_from[i + 1] - p_from[i];
    select j.o, p_uses[p_from[i] + u.o] as bucket into v_cut
    from generate_series(0, p_read[i] - 1) j (o) cross join generate_series(0, v_width - 1) u (o)
    where not p_dead[v_before + j.o + 1]
      and p_costs[p_at[i] + j.o * (v_width + 1) + u.o] > p_caps[p_uses[p_from[i] + u.o]]
    order by 1 limit 1;
    if found then n[i] := v_cut.o; dear[i] := v_cut.bucket; end if;
    v_before := v_before + p_read[i];
  end loop;
end $$;
