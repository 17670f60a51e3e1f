-- Returns the types of the events that are kept, by looking at one entry of the index for each.
create or replace function engine.list_emitted() returns setof text
language sql stable set enable_seqscan = off as $$
  with recursive kind as (
    (select e.type from sluice.emitted e order by e.type limit 1)
    union all
    select (select e.type from sluice.emitted e where e.type > k.type order by e.type limit 1)
    from kind k where k.type is not null)
  select k.type from kind k where k.type is not null
$$;
