-- Creates what is not known yet: of class 0 the classes themselves, of any other its lanes and buckets; from
-- the first job of each lane. A lane begins empty; its buckets stand as in takes, as costs do: also what goes by a label of
-- the worker, of which each claim finds which it is (resolve). Rows that other classes create too are inserted in order.
create or replace function engine.found(p_class bigint, p_lanes bigint[], p_bounds bigint[]) returns void
language plpgsql as $$
declare
  v_takes text[];
begin
  if p_class = 0 then
    insert into sluice.class (id, queue, task, labels)
    select distinct engine.class_id(j.queue, j.task, j.takes) as id, j.queue, j.task, engine.labels(j.takes)
    from unnest(p_lanes, p_bounds) a (lane, bound)
    cross join lateral (select queue, task, takes from sluice.job where lane = a.lane and seq >= a.bound and due_at is null order by seq limit 1) j
    order by id on conflict do nothing;
    return;
  end if;
  with first as (
    -- Tenants are compared within the limit that they share: by default the first keyed one, else the class.
    select a.lane, j.priority, coalesce(j.weight, 1) as weight, j.seq, j.takes, j.costs is not null as costed, sluice.hash64(coalesce(j.fair,
             (select t from unnest(j.takes) t where t like '%:%' limit 1), j.queue || E'\x1f' || j.task)) as fair
    from unnest(p_lanes, p_bounds) a (lane, bound)
    cross join lateral (select * from sluice.job where lane = a.lane and seq >= a.bound and due_at is null order by seq limit 1) j
    where (select count(*) from (select 1 from sluice.lane l where l.id = a.lane order by l.v desc limit 1) x) = 0
  ), made as (
    insert into sluice.lane (id, class, priority, weight, bound, n, fair, buckets, costed)
    select lane, p_class, priority, weight, seq, 0, fair, array(select sluice.hash64(t) from unnest(takes) with ordinality u (t, o) order by o), costed
    from first
  )
  select array_agg(distinct t) into v_takes from first cross join lateral unnest(takes) t where t !~ '^[^:*]+@';
  if v_takes is null then return; end if;
  -- Nobody retires a bucket between here and the end of the transaction that makes a lane with it.
  perform pg_advisory_xact_lock_shared(1397511523, -8);
  insert into sluice.bucket (id, name, key)
  select sluice.hash64(t) as id, n.name, case when t = n.name || '*' then '*' else substr(t, length(n.name) + 2) end
  from unnest(v_takes) t cross join lateral (select substring(t from '^[^:*]+') as name) n order by id on conflict do nothing;
end $$;
