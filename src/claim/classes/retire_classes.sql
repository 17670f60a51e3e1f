-- Retires classes that have nothing to do, so that claims do not look at them, if there are more than 128 classes.
-- Senders announce a retired class again (`engine.create_announced_classes`). It deletes retired classes once no
-- transaction is left that may still see them in use, and restores those that have something to do after all, because
-- a sender or a claim was under way when they were retired. The lanes of a class are deleted before it: a class that is
-- made anew does not know which of them have the same fair key. It handles up to 500 retired classes, and skips those
-- that are locked; a class with many lanes is deleted by later calls.
create or replace function engine.retire_classes() returns void language plpgsql as $$
declare
  v_least constant xid8 := pg_snapshot_xmin(pg_current_snapshot());
  v_most constant integer := 1000;  -- lanes of one class
  v_count integer;
  v_id bigint;
  v_is sluice.class_state;
  v_classes bigint[];
  v_active bigint[];
begin
  -- This function and claim/arrivals/delete_read_arrivals.sql delete arrivals and states, each in its own order: so one
  -- at a time.
  if not pg_try_advisory_xact_lock(1397511523, -4) then return; end if;  -- lock: arrivals
  if (select count(*) from sluice.class where retired is null) > 128 then
    select f.classes, f.active into v_classes, v_active
    from engine.find_classes(null, array(select distinct task from sluice.class), null, 0, 0) f;
    update sluice.class set retired = pg_current_xact_id() where id = any (array(
      select k.id from unnest(v_classes) c join sluice.class k on k.id = c
      where c <> all (v_active) and not exists (select 1 from sluice.list l where l.class = c and l.due is not null)
      limit 1000 for update of k skip locked));
  end if;
  for v_id in select id from sluice.class where retired is not null order by random() limit 500 loop
    continue when not pg_try_advisory_xact_lock(1397511524, (v_id & 1023)::integer);  -- lock: class
    perform 1 from sluice.class where id = v_id and retired is not null for update skip locked;
    continue when not found;
    if exists (select 1 from sluice.list l where l.class = v_id and l.due is not null)
       or (engine.read_arrivals(v_id)).lanes is not null then
      update sluice.class set retired = null where id = v_id;
      continue;
    end if;
    continue when not exists (select 1 from sluice.class where id = v_id and retired < v_least);
    delete from sluice.lane where ctid = any (array(
      select ctid from sluice.lane where class = v_id and vstart is not null and list is null limit v_most));
    get diagnostics v_count = row_count;
    continue when v_count = v_most;
    delete from sluice.class where id = v_id;
    select * into v_is from sluice.class_state where class = v_id order by n desc limit 1;
    delete from sluice.arrival where class = v_id and xid < pg_snapshot_xmin(v_is.snap);
    delete from sluice.class_state where class = v_id;
    delete from sluice.list where class = v_id;
  end loop;
  perform engine.announce_orphaned_arrivals(v_least);
end $$;
