-- Divides room among lanes: pure arithmetic, no table. Lanes come in fair order; each turn gives the lane with the
-- smallest virtual start up to a quantum of units, as far as all its buckets allow, and moves its fair key on.
-- p_uses: bucket positions of lane i are p_uses[p_from[i] .. p_from[i + 1] - 1]. p_horizon: virtual start of lanes
-- that were not read (null: all were); nobody is served past it. p_blocked[i] = position of the bucket that denied
-- lane i, 0 = none. dispatch/share.ts is the same in TypeScript, and a test holds one to the other.
create or replace function sluice.share_v1(
  p_want integer, p_n bigint[], p_vstart bigint[], p_step bigint[], p_fair integer[], p_from integer[], p_uses integer[],
  p_avail bigint[], p_horizon bigint, out take integer[], out vstart bigint[], out blocked integer[])
language plpgsql immutable as $$
declare
  v_lanes integer := cardinality(p_n);
  v_quantum integer := greatest(1, p_want / greatest(1, v_lanes));
  v_left integer := p_want;
  v_next integer := 1;
  v_queue integer[] := '{}';
  v_head integer := 1;
  v_tail integer := 0;
  i integer;
  k bigint;
  b integer;
begin
  take := array_fill(0, array[v_lanes]);
  blocked := array_fill(0, array[v_lanes]);
  vstart := p_vstart;
  while v_left > 0 and (v_next <= v_lanes or v_head <= v_tail) loop
    if v_head > v_tail or (v_next <= v_lanes and vstart[p_fair[v_next]] <= vstart[p_fair[v_queue[v_head]]]) then
      i := v_next;
      v_next := v_next + 1;
    else
      i := v_queue[v_head];
      v_head := v_head + 1;
    end if;
    if p_horizon is not null and vstart[p_fair[i]] > p_horizon and take[i] > 0 then continue; end if;
    k := least(v_quantum, v_left, p_n[i] - take[i]);
    for u in p_from[i] .. p_from[i + 1] - 1 loop
      b := p_uses[u];
      if p_avail[b] < k then
        k := greatest(p_avail[b], 0);
        if k = 0 then blocked[i] := b; end if;
      end if;
    end loop;
    if k > 0 then
      for u in p_from[i] .. p_from[i + 1] - 1 loop
        p_avail[p_uses[u]] := p_avail[p_uses[u]] - k;
      end loop;
      take[i] := take[i] + k;
      v_left := v_left - k;
      vstart[p_fair[i]] := vstart[p_fair[i]] + k * p_step[i];
      if take[i] < p_n[i] then
        v_tail := v_tail + 1;
        v_queue[v_tail] := i;
      end if;
    end if;
  end loop;
end $$;
