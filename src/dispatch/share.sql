-- Divides room among lanes: pure arithmetic, no table. Lanes come in fair order. Deficit round robin over fair keys: each
-- turn goes to the fair key with the smallest virtual start and gives its lanes, in order, up to a quantum, as far as all
-- their buckets allow; a round's quantum is what is left over the weights that still take part.
-- p_uses: bucket positions of lane i are p_uses[p_from[i] .. p_from[i + 1] - 1]. p_horizon: virtual start of lanes
-- that were not read (null: all were); nobody is served past it. p_blocked[i] = position of the bucket that denied
-- lane i, 0 = none. Every fair key has a lane, every lane a job. dispatch/share.ts is the same in TypeScript, and a test holds one to the other.
create or replace function engine.share(
  p_want integer, p_n bigint[], p_vstart bigint[], p_step bigint[], p_fair integer[], p_from integer[], p_uses integer[],
  p_avail bigint[], p_horizon bigint, out take integer[], out vstart bigint[], out blocked integer[])
language plpgsql immutable as $$
declare
  v_lanes integer := cardinality(p_n);
  v_fairs integer := cardinality(p_vstart);
  v_most bigint := p_want;  -- no more can be given: what buckets that all lanes share have
  v_left bigint := p_want;
  v_order integer[] := p_fair;  -- fair keys in order of appearance
  v_first integer[] := array_fill(0, array[v_fairs]);  -- the first open lane of each, and after each lane the next; 0 = none
  v_after integer[] := array_fill(0, array[v_lanes]);
  v_lead integer[]; v_weights bigint := 1; v_budget bigint; v_new integer := 1;
  v_queue integer[] := '{}'; v_head integer := 1; v_tail integer := 0; v_round integer := 0;
  v_was bigint; k bigint; f integer; i integer;
begin
  take := v_after;
  blocked := v_after;
  vstart := p_vstart;
  for l in reverse v_lanes .. 1 loop
    v_after[l] := v_first[p_fair[l]];
    v_first[p_fair[l]] := l;
  end loop;
  v_lead := v_first;
  if v_fairs < v_lanes then v_order := array(select u.f from unnest(p_fair) with ordinality u (f, o) group by u.f order by min(u.o)); end if;
  if v_fairs > 1 then
    v_most := least(v_most, (select min(p_avail[s.b]) from (select b from unnest(p_uses) b group by b having count(*) = v_lanes) s));
    v_weights := (select sum(greatest(1, 1000000 / greatest(1, p_step[v_lead[o]]))) from unnest(v_order) o);
  end if;
  v_budget := v_most * 1000000 / v_weights;
  while v_left > 0 and (v_new <= v_fairs or v_head <= v_tail) loop
    if v_head > v_tail or (v_new <= v_fairs and vstart[v_order[v_new]] <= vstart[v_queue[v_head]]) then
      f := v_order[v_new];
      v_new := v_new + 1;
    else
      if v_head > v_round then
        v_round := v_tail;
        v_budget := greatest(0, v_most - p_want + v_left) * 1000000 / v_weights;
      end if;
      f := v_queue[v_head];
      v_head := v_head + 1;
    end if;
    if p_horizon is null or vstart[f] <= p_horizon then
      v_was := vstart[f];
      i := v_first[f];
      while i > 0 loop
        k := least(greatest((v_budget - vstart[f] + v_was) / greatest(1, p_step[i]), (vstart[f] = v_was)::integer), v_left, p_n[i] - take[i]);
        exit when k <= 0;
        for u in p_from[i] .. p_from[i + 1] - 1 loop
          if p_avail[p_uses[u]] < k then
            k := greatest(0, p_avail[p_uses[u]]);
            blocked[i] := p_uses[u];
          end if;
        end loop;
        for u in p_from[i] .. p_from[i + 1] - 1 loop p_avail[p_uses[u]] := p_avail[p_uses[u]] - k; end loop;
        take[i] := take[i] + k;
        vstart[f] := vstart[f] + k * p_step[i];
        v_left := v_left - k;
        exit when blocked[i] = 0 and take[i] < p_n[i];
        i := v_after[i];
      end loop;
      v_first[f] := i;
      if i > 0 and vstart[f] > v_was then
        v_tail := v_tail + 1;
        v_queue[v_tail] := f;
        continue;
      end if;
    end if;
    v_weights := v_weights - greatest(1, 1000000 / greatest(1, p_step[v_lead[f]]));
  end loop;
end $$;
