-- Divides room among lanes of which some have jobs that take more than one of everything: pure arithmetic, no table; what
-- p_want .. p_horizon and the results mean: share. p_at[i]: where the numbers of lane i's first job begin in p_costs, 0
-- where each takes one; of each job one number for each use of its lane (-1: it takes nothing and waits for nothing; 0: it
-- waits for one), and its turn. p_first: lanes whose next job goes before all turns. Each turn goes to the fair key with
-- the smallest virtual start, and lasts until another one's is smaller. dispatch/share.ts (shareCosts) is the same.
create or replace function engine.share_costs(
  p_want integer, p_n bigint[], p_vstart bigint[], p_step bigint[], p_fair integer[], p_from integer[], p_uses integer[],
  p_avail bigint[], p_horizon bigint, p_at integer[], p_costs integer[], p_first integer[],
  out take integer[], out vstart bigint[], out blocked integer[])
language plpgsql immutable as $$
declare
  v_left integer := p_want;
  v_queue integer[];
  v_until bigint;
  v_firsts integer := coalesce(cardinality(p_first), 0);
  v_visit integer := 1;
  v_own integer[];
  v_denied integer;
  v_over boolean;
  v_place integer;
  v_fair integer;
  c integer; i integer; j integer;
begin
  take := array_fill(0, array[cardinality(p_n)]);
  blocked := take;
  vstart := p_vstart;
  loop
    if v_visit <= v_firsts then
      v_own := p_first[v_visit:v_visit];
    else
      if v_queue is null then
        v_queue := array(select u.f from (select g.f, min(g.o) as o from unnest(p_fair) with ordinality g (f, o) group by 1) u
                         order by vstart[u.f], u.o);
      end if;
      exit when v_queue = '{}';
      v_fair := v_queue[1];
      v_queue := v_queue[2:];
      v_until := least(vstart[v_queue[1]], p_horizon);
      v_own := array(select o from unnest(p_fair) with ordinality g (f, o) where g.f = v_fair
                     and blocked[o] = 0 and take[o] < p_n[o] and (vstart[g.f] <= p_horizon) is not false order by o);
    end if;
    v_visit := v_visit + 1;
    v_over := false;
    while v_own <> '{}' and v_left > 0 and not v_over loop
      i := v_own[1];
      j := case when p_at[i] > 0 then p_at[i] + take[i] * (p_from[i + 1] - p_from[i] + 1) - p_from[i] end;
      v_denied := 0;
      for u in p_from[i] .. p_from[i + 1] - 1 loop
        c := coalesce(p_costs[j + u], 1);
        if c >= 0 and p_avail[p_uses[u]] < greatest(c, 1) then
          v_denied := v_denied + 1;
          blocked[i] := p_uses[u];
        end if;
      end loop;
      if v_denied = 1 then p_avail[blocked[i]] := 0; end if;
      if v_denied = 0 then
        for u in p_from[i] .. p_from[i + 1] - 1 loop
          p_avail[p_uses[u]] := p_avail[p_uses[u]] - greatest(coalesce(p_costs[j + u], 1), 0);
        end loop;
        take[i] := take[i] + 1;
        vstart[p_fair[i]] := vstart[p_fair[i]] + coalesce(p_costs[j + p_from[i + 1]], 1) * p_step[i];
        v_left := v_left - 1;
        v_over := (vstart[p_fair[i]] > v_until) is true or v_visit <= v_firsts + 1;
      end if;
      if blocked[i] > 0 or take[i] = p_n[i] then v_own := v_own[2:]; end if;
    end loop;
    exit when v_left = 0;
    if v_visit > v_firsts + 1 and v_own <> '{}' and (vstart[v_fair] <= p_horizon) is not false then
      v_place := (select count(*) from unnest(v_queue) q where vstart[q] <= vstart[v_fair]);
      v_queue := v_queue[:v_place] || v_fair || v_queue[v_place + 1:];
    end if;
  end loop;
end $$;
