-- Calls idle workers that serve one of these classes, p_most of them: room was made that no sleeper was told of. By their
-- ids, so that one place which frees wakes one worker and not the fleet; and off the list, so that the next place wakes
-- another. Those are left alone that cannot begin its jobs (suits).
-- p_label, p_value: the room was made in this label's: call only who bears it.
create or replace function engine.summon(p_classes bigint[], p_most bigint, p_label text default null, p_value text default null)
returns void language plpgsql as $$
declare
  v_called bigint;
begin
  with called as (
    delete from sluice.idle where worker = any (array(
      select i.worker from sluice.idle i join sluice.worker w on w.id = i.worker
      where (p_label is null or w.labels ->> p_label = p_value)
        and engine.suits(i, w, p_classes, p_label is not null)
      order by random() limit p_most for update of i skip locked))
    returning worker
  )
  select count(pg_notify('sluice.wake', '@' || worker)) into v_called from called;
end $$;
