-- Releases what is parked under this name, and wakes the workers. Returns false when nothing of this name is parked.
-- The row of sluice.parked is deleted last, because a transaction that parks locks what it parks before that row.
-- p_kind: job, lane or bucket
-- p_name: as in sluice.parked
create or replace function engine.release_parked(p_kind text, p_name text) returns boolean language plpgsql
  set enable_seqscan = off set jit = off as $$
declare
  v_one sluice.parked;
  v_is boolean;
begin
  select * into v_one from sluice.parked p where p.kind = p_kind and p.name = p_name;
  if not found then return false; end if;
  case p_kind
    when 'job' then
      update sluice.job j set due_at = null where j.id = v_one.job and j.due_at = 'infinity';
      v_is := found;
      if v_is then perform engine.announce_jobs(array[v_one.job]); end if;
    when 'lane' then
      perform engine.lock_classes(array(select l.class from sluice.lane l where l.id = v_one.id and l.list = 1));
      -- The next claim makes its row again, from its first job.
      delete from sluice.lane l where l.id = v_one.id and l.list = 1;
      v_is := found;
      if v_is then
        insert into sluice.arrival (xid, class, lane, pos, n)
        select pg_current_xact_id(), c.class, v_one.id, w.pos, w.n
        from (select min(j.seq) as pos, count(*) as n, min(j.queue) as queue, min(j.task) as task,
                     min(j.buckets) as buckets
              from sluice.job j where j.lane = v_one.id and j.claim is null and j.due_at is null) w
        cross join lateral engine.find_arrival_classes(w.queue, w.task, w.buckets) c where w.n > 0;
      end if;
    else v_is := engine.release_bucket(v_one.id);
  end case;
  -- The row of a bucket that was parked again stays.
  delete from sluice.parked p where p.kind = p_kind and p.name = p_name
    and not exists (select 1 from sluice.bucket b where p.kind = 'bucket' and b.id = p.id and b.parked);
  if v_is then perform pg_notify('sluice.wake', '*'); end if;
  return v_is;
end $$;
