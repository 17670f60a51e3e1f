-- Ends jobs that wait for a limit which cannot have room before they expire, at once: whoever hears of it can do something
-- else in time. p_lists: where each of these lanes stands or is about to, 0 and null being no wait. Room is looked for as if
-- all that runs, and takes outside of jobs, gave back what they were granted (recoverable); a job behind others in its lane is asked about the first unit too. Bounded:
-- up to 500 a call. gone: how many of each lane went; later: there may be more soon, look again. Call under the classes'
-- locks. It waits for no row.
create or replace function engine.doom(p_now bigint, p_lane sluice.lane[], p_lists bigint[], out gone integer[], out later boolean)
language plpgsql as $$
declare
  v_left integer := 500;
  v_ask integer[];      -- positions of lanes with a job that expires
  v_first bigint[];     -- when the first of them does
  v_buckets bigint[];
  v_room bigint[];      -- the earliest room of each bucket
  v_back bigint[];      -- and when all in hand is given back
  v_at bigint;
  v_of bigint;
begin
  later := false;
  if not exists (select 1 from unnest(p_lists) l where l <> 0)
     or not exists (select 1 from sluice.job where expires_at is not null) then return; end if;
  select array_agg(l.ordinality), array_agg((extract(epoch from j.expires_at) * 1000000)::bigint + e.ahead_us) into v_ask, v_first
  from (select ahead_us from sluice.epoch limit 1) e cross join unnest(p_lane) with ordinality l cross join lateral (
    select expires_at from sluice.job where lane = l.id and expires_at is not null and due_at is null order by expires_at limit 1) j
  where p_lists[l.ordinality] <> 0;
  if v_ask is null then return; end if;
  v_buckets := array(select distinct b from unnest(v_ask) i, unnest(p_lane[i].buckets) b);
  v_room := array(select engine.earliest(b, p_now, 0) from unnest(v_buckets) b);
  if (select min(f) from unnest(v_first) f) > (select max(r) from unnest(v_room) r) then return; end if;
  -- Both in one statement: what is given back in between would be in neither.
  select array_agg(engine.earliest(b.id, p_now, engine.recoverable(b.id, h.since, p_now)) order by b.o) into v_back
  from unnest(v_buckets) with ordinality b (id, o)
  left join (select sluice.hash64(t.name) as bucket, min(c.at) as since from sluice.claim c cross join unnest(c.lanes, c.seqs) s (lane, seq)
             join sluice.job j on j.lane = s.lane and j.seq = s.seq and j.due_at is null and j.claim = c.id
             cross join unnest(j.takes) t (name) group by 1) h on h.bucket = b.id;
  gone := array_fill(0, array[cardinality(p_lane)]);
  for k in 1 .. cardinality(v_ask) loop
    select max(u.back), max(u.room) > max(u.back) and v_first[k] <= max(u.room) or later,
           (array_agg(u.bucket order by u.back desc))[1]
    into v_at, later, v_of
    from unnest(v_buckets, v_room, v_back) u (bucket, room, back) where u.bucket = any (p_lane[v_ask[k]].buckets);
    continue when v_first[k] > v_at;
    gone[v_ask[k]] := engine.hopeless(p_lane[v_ask[k]].id, v_of, v_at, v_left);
    v_left := v_left - gone[v_ask[k]];
  end loop;
  later := later or v_left = 0;
end $$;
