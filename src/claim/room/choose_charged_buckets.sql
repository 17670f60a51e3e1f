-- Decides which buckets each job of a claim charges where that depends on the worker and the moment: for a label the
-- worker's own bucket, for a pool the member that has the most room left after the jobs before it, and beside takers. A
-- job that finds no member is left out.
-- seqs: the jobs
-- charged_buckets: for each of seqs its actual buckets, in the order of the job's, joined by U+001F; null: the job's
-- buckets, rooms: all that jobs may hold; each room once, with its bucket's first position
create or replace function engine.choose_charged_buckets(
  p_labels jsonb, p_lanes sluice.lane[], p_room engine.claim_room, p_share engine.division,
  out seqs bigint[], out charged_buckets text[], out buckets bigint[], out rooms engine.room[]) language plpgsql as $$
declare
  v_job record;
  v_names text[];
  v_limits text[];
  v_units bigint[];
  v_places bigint[];
  v_all text[];
  v_limit text;
  v_best integer;
  v_picked integer[];
begin
  seqs := '{}';
  charged_buckets := '{}';
  buckets := array(select r.bucket from unnest(p_room.rooms) r order by r.ord);
  rooms := array(select r from unnest(p_room.rooms) r where array_position(buckets, r.bucket) = r.ord);
  select array_agg(b.name || ':' || b.key order by r.ord), array_agg(b.name order by r.ord),
         array_agg(r.units order by r.ord), array_agg(r.places order by r.ord)
  into v_names, v_limits, v_units, v_places
  from unnest(rooms) r join sluice.bucket b on b.id = r.bucket where r.bucket = any (p_room.members);
  for v_job in
    select l.ordinality as o, j.seq, j.buckets, j.costs from unnest(p_lanes) with ordinality l cross join lateral (
      select k.seq, k.buckets, k.costs from sluice.job k
      where lane = l.id and seq >= l.bound and claim is null and due_at is null
        and case when xmax = '0' then true else engine.try_lock_job(ctid) end order by seq
      limit p_share.take[l.ordinality]) j
    where p_share.take[l.ordinality] > 0 and not l.costed
    union all
    select p.o, j.seq, j.buckets, j.costs from unnest(p_share.of, p_share.seqs) with ordinality p (lane, seq, o)
    join sluice.job j on j.lane = p.lane and j.seq = p.seq and j.due_at is null and j.claim is null
    order by o, seq
  loop
    v_all := v_job.buckets;
    v_picked := array_fill(0, array[coalesce(cardinality(v_all), 0)]);
    for i in 1 .. coalesce(cardinality(v_all), 0) loop
      v_limit := substring(v_all[i] from '^[^:*@]+');
      if v_all[i] = v_limit || '*' then
        v_best := null;
        for m in 1 .. coalesce(cardinality(v_names), 0) loop
          continue when v_limits[m] <> v_limit or v_places[m] < 1 or v_units[m] < greatest(1, v_job.costs[i]);
          if v_best is null or least(v_units[m], v_places[m]) > least(v_units[v_best], v_places[v_best]) then
            v_best := m;
          end if;
        end loop;
        v_picked[i] := v_best;
        v_all[i] := v_names[v_best];
      elsif v_all[i] like v_limit || '@%' then
        v_all[i] := v_limit || ':' || (p_labels ->> substr(v_all[i], length(v_limit) + 2));
      end if;
    end loop;
    continue when array_position(v_all, null) is not null;
    for i in 1 .. coalesce(cardinality(v_all), 0) loop
      continue when v_picked[i] = 0;
      v_units[v_picked[i]] := v_units[v_picked[i]] - coalesce(v_job.costs[i], 1);
      v_places[v_picked[i]] := v_places[v_picked[i]] - 1;
    end loop;
    seqs := seqs || v_job.seq;
    charged_buckets := charged_buckets || array_to_string(nullif(v_all, v_job.buckets), E'\x1f');
  end loop;
end $$;
