-- Divides room among lanes: pure arithmetic, no table is read. Each turn goes to the fair key with the smallest virtual
-- start, which gives jobs of its lanes, in order, as far as all their buckets allow. Jobs with costs are given one by
-- one, until another fair key's start is smaller. Jobs without costs take one unit of each bucket, and are given up to
-- a quantum at once. In each lap over the keys the quantum is what is left, divided by the weights that still take
-- part: for 12 units and three keys of weight 1 it is 4. So the last laps give single units. If a job lacks room in one
-- bucket only, what that has left goes to nobody else: cheap jobs would take for ever what an expensive one waits for.
-- test/claim/share.ts is the same in TypeScript.
-- p_want: how many jobs at most
-- p_n: how many jobs each lane has
-- p_vstart: the virtual start of each fair key, ascending; each key has a lane
-- p_step: for each lane, what a unit adds to the virtual start of its fair key
-- p_fair: for each lane the position of its fair key
-- p_from, p_uses: the bucket positions of lane i are p_uses[p_from[i] .. p_from[i + 1] - 1]
-- p_units, p_places: what is free in each bucket; a job takes its cost in units, and one place
-- p_horizon: the virtual start of lanes that were not read; null: all were read. No turn begins after it.
-- p_at: where the first job of each lane begins in p_costs; 0: each of the lane's jobs takes one unit
-- p_costs: for each job its cost in each bucket of its lane (0: it takes no unit, but waits until one is free), then
-- its turn
-- p_first: lanes whose next job goes before all turns
-- take: how many jobs each lane gives
-- vstart: the virtual start of each fair key afterwards
-- blocked: for each lane the position of the bucket that denied it; 0: none did
create or replace function engine.divide_by_turns(
  p_want integer, p_n bigint[], p_vstart bigint[], p_step bigint[], p_fair integer[], p_from integer[],
  p_uses integer[], p_units bigint[], p_places bigint[], p_horizon bigint, p_at integer[], p_costs integer[],
  p_first integer[], out take integer[], out vstart bigint[], out blocked integer[])
language plpgsql immutable as $$
declare
  v_left bigint := p_want;
  v_most bigint;  -- how many jobs the buckets that all lanes use have room for
  v_after integer[] := array_fill(0, array[cardinality(p_n)]);  -- for each lane the next of its fair key; 0: none
  v_open integer[] := array_fill(0, array[cardinality(p_vstart)]);  -- the next lane of each fair key
  v_queue integer[] := array(select -l from unnest(p_first) l) || array(select generate_subscripts(p_vstart, 1));
  v_starts bigint[] := array_fill(p_vstart[1], array[coalesce(cardinality(p_first), 0)]) || p_vstart;
  v_weight bigint[] := v_open; v_weights bigint; v_budget bigint; k bigint; f integer; i integer; j integer;
  v_laps integer[] := v_open; v_lap integer := 0;  -- the lap in which each fair key had its last turn
  v_was bigint; v_until bigint; v_turn integer; v_fit bigint; v_denied integer; v_place integer;
begin
  take := v_after; blocked := v_after; vstart := p_vstart;
  for l in reverse cardinality(p_n) .. 1 loop
    v_after[l] := v_open[p_fair[l]]; v_open[p_fair[l]] := l;
    v_weight[p_fair[l]] := greatest(1, 1000000 / p_step[l]);
  end loop;
  select least(p_want, min(least(p_units[s.b], p_places[s.b]))), (select sum(w) from unnest(v_weight) w)
  into v_most, v_weights from (select b from unnest(p_uses) b group by b having count(*) = cardinality(p_n)) s;
  for visit in 1 .. 2147483647 loop
    f := v_queue[visit];
    exit when v_left = 0 or f is null;
    if f < 0 then
      i := -f; f := p_fair[i]; v_was := vstart[f]; v_until := v_was - 1; v_budget := 0;
    else
      v_was := v_starts[visit]; v_until := least(v_starts[visit + 1], p_horizon);
      i := case when vstart[f] > p_horizon then 0 else v_open[f] end;
      if v_laps[f] = v_lap then
        v_lap := v_lap + 1; v_budget := greatest(0, v_most - p_want + v_left) * 1000000 / v_weights;
      end if;
      v_laps[f] := v_lap;
    end if;
    while i > 0 and v_left > 0 loop
      if blocked[i] > 0 or take[i] = p_n[i] then
        i := case when v_queue[visit] > 0 then v_after[i] else 0 end; continue;
      end if;
      j := case when p_at[i] > 0 then p_at[i] + take[i] * (p_from[i + 1] - p_from[i] + 1) - p_from[i] end;
      v_turn := coalesce(p_costs[j + p_from[i + 1]], 1); v_denied := 0;
      k := case when j is not null then (vstart[f] = v_was or (vstart[f] <= v_until) is not false)::integer
                else least(greatest((vstart[f] = v_was)::integer, (v_budget - vstart[f] + v_was) / p_step[i]),
                           v_left, p_n[i] - take[i]) end;
      exit when k <= 0;
      for u in p_from[i] .. p_from[i + 1] - 1 loop
        v_fit := least(p_units[p_uses[u]] / greatest(p_costs[j + u], 1), p_places[p_uses[u]]);
        if v_fit < 1 then v_denied := v_denied + 1; end if;
        if v_fit < k then k := greatest(v_fit, 0); blocked[i] := p_uses[u]; end if;
      end loop;
      for u in p_from[i] .. p_from[i + 1] - 1 loop
        p_units[p_uses[u]] := p_units[p_uses[u]] - k * coalesce(p_costs[j + u], 1);
        p_places[p_uses[u]] := p_places[p_uses[u]] - k;
      end loop;
      if v_denied = 1 then p_units[blocked[i]] := 0; end if;
      take[i] := take[i] + k; v_left := v_left - k;
      vstart[f] := vstart[f] + k * v_turn * p_step[i];
      exit when j is null and blocked[i] = 0 and take[i] < p_n[i];
    end loop;
    continue when v_queue[visit] < 0;
    v_open[f] := i;
    if i = 0 or vstart[f] = v_was then
      v_weights := v_weights - v_weight[f];
    elsif vstart[f] >= v_starts[cardinality(v_starts)] then
      v_queue := v_queue || f; v_starts := v_starts || vstart[f];
    else
      v_place := width_bucket(vstart[f], v_starts);
      v_queue := v_queue[:v_place] || f || v_queue[v_place + 1:];
      v_starts := v_starts[:v_place] || vstart[f] || v_starts[v_place + 1:];
    end if;
  end loop;
end $$;
