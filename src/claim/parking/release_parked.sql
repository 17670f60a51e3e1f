-- Releases what is parked under this name, and wakes the workers. Returns false when nothing of this name is parked.
-- The row of sluice.parked is deleted last, because a transaction that parks locks what it parks before that row.
-- p_kind: job, lane or bucket; null: any
-- p_name: as in sluice.parked
create or replace function engine.release_parked(p_kind text, p_name text) returns boolean language plpgsql
  set enable_seqscan = off set jit = off as $$
declare
  v_one sluice.parked;
  v_is boolean := false;
begin
  for v_one in
    select p.* from sluice.parked p where p.name = p_name and p.kind = coalesce(p_kind, p.kind) order by p.kind desc
  loop
    case v_one.kind
      when 'job' then
        update sluice.job j set due_at = null where j.id = v_one.job and j.due_at = 'infinity';
        if found then
          perform engine.announce_jobs(array[v_one.job]);
          v_is := true;
        end if;
      when 'lane' then v_is := engine.release_lane(v_one.id) or v_is;
      else v_is := engine.release_bucket(v_one.id) or v_is;
    end case;
    -- The row of a bucket that was parked again stays.
    delete from sluice.parked p where p.kind = v_one.kind and p.name = v_one.name
      and not exists (select 1 from sluice.bucket b where p.kind = 'bucket' and b.id = p.id and b.parked);
  end loop;
  if v_is then perform pg_notify('sluice.wake', '*'); end if;
  return v_is;
end $$;
