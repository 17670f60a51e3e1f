-- Plans grants of one unit of all these buckets, one after the other, each for the earliest instant at which all of
-- them have room: pure arithmetic on what engine.bucket_room found, no table is read. So each grant is what the buckets
-- would grant at its instant. Rates are computed on; of the other rules only what is free at p_now is used. Places are
-- taken from now on, so buckets with concurrency plan nothing ahead, and neither do buckets near the end of a quota's
-- period.
-- The caller leaves out buckets without a definition, refused or lent ones, and pools.
-- p_rooms: what engine.bucket_room returned, in order.
-- p_now, p_until: the first and the last instant, in microseconds.
-- p_want: the most grants for p_now. p_ahead: the most grants for later instants.
-- times: the instant of each grant, ascending.
-- rooms: the buckets before the grants of each instant, for engine.append_ledger, ord counted on. of: the number of the
-- instant of each of them, from 1.
create or replace function engine.plan_instants(
  p_rooms engine.room[], p_now bigint, p_until bigint, p_want integer, p_ahead integer,
  out times bigint[], out rooms engine.room[], out of integer[])
language plpgsql immutable as $$
declare
  v_room engine.room; v_rooms engine.room[] := p_rooms;
  v_left bigint := p_want + p_ahead; v_at bigint := p_now; v_next bigint; v_over bigint; v_count integer := 0;
begin
  times := '{}'; rooms := '{}'; of := '{}';
  foreach v_room in array p_rooms loop
    for r in 1 .. cardinality(v_room.kind) loop
      continue when v_room.kind[r] = 'rate';
      v_left := least(v_left, v_room.capacity[r] - v_room.debt[r]);
      if v_room.kind[r] = 'concurrency' or v_room.kind[r] = 'quota'
        and v_room.wall + (p_until - p_now) >= v_room.quota[r][3] - v_room.margin[r] then p_until := p_now; end if;
    end loop;
  end loop;
  while cardinality(times) < v_left loop
    v_next := v_at;
    foreach v_room in array v_rooms loop
      v_next := greatest(v_next, v_room.now_at, v_room.hold);
      for r in 1 .. cardinality(v_room.kind) loop
        continue when v_room.kind[r] <> 'rate';
        v_over := v_room.debt[r] - (v_room.capacity[r] - 1) * v_room.weight[r];
        if v_over > 0 then
          v_next := greatest(v_next, v_room.now_at + (v_over - 1) / v_room.drain[r] + 1); end if;
      end loop;
    end loop;
    exit when v_next > p_until or v_next = p_now and cardinality(times) = p_want;
    exit when v_next > p_now and v_count - (times[1] = p_now)::integer >= 254;
    if v_next > p_now then
      exit when p_ahead = 0;
      p_ahead := p_ahead - 1; end if;
    if v_next > v_at or v_count = 0 then v_count := v_count + 1; end if;
    for i in 1 .. cardinality(v_rooms) loop
      v_room := v_rooms[i];
      if v_next > v_at or times = '{}' then
        for r in 1 .. cardinality(v_room.kind) loop
          if v_room.kind[r] = 'rate' then
            v_room.debt[r] := engine.drain_debt(v_room.debt[r], v_room.drain[r], v_next - v_room.now_at); end if;
        end loop;
        if v_room.slots is not null then
          v_room.slots := engine.advance_windows(v_room.slots, v_room.kind, v_room.slot, v_room.now_at, v_next); end if;
        v_room.wall := v_room.wall + v_next - v_room.now_at; v_room.now_at := v_next;
        v_room.ord := cardinality(rooms) + 1; rooms := rooms || v_room; of := of || v_count;
        v_room.n := v_room.n + 1;
      end if;
      for r in 1 .. cardinality(v_room.kind) loop v_room.debt[r] := v_room.debt[r] + v_room.weight[r]; end loop;
      v_room.slots := engine.count_in_windows(v_room.slots, v_room.kind, v_room.slot, v_next, v_next, 1);
      v_room.quota := engine.count_in_quotas(v_room.quota, v_room.kind, v_room.margin, v_room.wall, 1);
      v_rooms[i] := v_room;
    end loop;
    times := times || v_next; v_at := v_next;
  end loop;
end $$;
