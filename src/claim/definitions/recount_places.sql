-- Counts the jobs and the takes that hold a place in each bucket of the limit p_name, and appends the difference to
-- what the ledger has. The caller has locked the buckets, and keeps attempts from ending meanwhile, by the lock of
-- claim/finish/lock_definitions.sql.
-- p_bucket: only this bucket; null: every bucket in which somebody holds a place
create or replace function engine.recount_places(p_name text, p_bucket bigint default null) returns void
language plpgsql as $$
declare
  v_buckets bigint[];
  v_running bigint[];
  v_rooms engine.room[];
begin
  select array_agg(n.id), array_agg(n.running) into v_buckets, v_running from (
    select u.id, sum(u.places)::bigint as running from (
      select sluice.hash64(t) as id, 1 as places
      from sluice.claim c cross join unnest(c.lanes, c.seqs) h (lane, seq)
      join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
      cross join lateral (select distinct t from unnest(coalesce(j.charged_buckets, j.buckets)) t) t
      where split_part(t, ':', 1) = p_name
      union all
      select l.bucket, 1 from sluice.lease l join sluice.bucket b on b.id = l.bucket where b.name = p_name
      union all
      select p_bucket, 0) u
    where u.id = coalesce(p_bucket, u.id) group by u.id) n;
  v_rooms := array(
    select r from unnest(engine.bucket_room(v_buckets, 0)) r where 'concurrency' = any (r.kind) order by r.ord);
  perform engine.append_ledger(v_rooms, p_places => array(
    select v_running[i] - coalesce((
      select r.debt[array_position(r.kind, 'concurrency')] from unnest(v_rooms) r where r.ord = i), 0)
    from generate_subscripts(v_running, 1) i order by i));
end $$;
