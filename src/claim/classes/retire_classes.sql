-- Retires those of p_classes that have nothing to do, so that claims do not look at them. Their senders announce them
-- again (`engine.create_announced_classes`). It skips locked rows.
-- p_active: classes that have something to do
create or replace function engine.retire_classes(p_classes bigint[], p_active bigint[]) returns void
language plpgsql as $$
begin
  update sluice.class set retired = pg_current_xact_id() where id = any (array(
    select k.id from unnest(p_classes) c join sluice.class k on k.id = c
    where c <> all (p_active) and not exists (select 1 from sluice.list l where l.class = c and l.due is not null)
    limit 1000 for update of k skip locked));
end $$;
