-- Deletes lanes in which no job waits; the next job makes such a lane anew. It examines the next 1,000 lanes after
-- p_after, under the locks of their classes. Returns the last lane that it examined; null: there are no more, or
-- another worker is at it.
create or replace function engine.delete_lanes(p_after bigint) returns bigint language plpgsql
  set enable_seqscan = off set jit = off set enable_bitmapscan = off as $$
declare
  v_ids bigint[];
  v_classes bigint[];
  v_last bigint;
begin
  if not pg_try_advisory_xact_lock(1397511523, -6) then return null; end if;  -- lock: old lanes
  select array_agg(l.id), max(l.id) into v_ids, v_last
  from (select id from sluice.lane where id > p_after order by id, v limit 1000) l;
  v_classes := array(select distinct l.class from sluice.lane l where l.id = any (v_ids) and l.list is null);
  perform engine.lock_classes(v_classes);
  -- Only in the locked classes: lanes of others may have become empty since, and may be filled by a claim just now.
  delete from sluice.lane l where l.id = any (v_ids) and l.class = any (v_classes) and l.list is null;
  return v_last;
end $$;
