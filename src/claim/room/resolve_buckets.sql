-- Finds the real buckets in which lanes of these classes need room: a label (`ip@host`) stands for the worker's own
-- bucket. It inserts the rows of buckets that were never used, and keeps `engine.retire_buckets` from deleting them
-- until the transaction ends: call it before the buckets are locked.
-- p_buckets: the buckets under the names that lanes use
-- buckets: the real ones, in the order of p_buckets
-- members: the buckets of the pools among them, to be locked too
-- labels: the worker's labels; null: there are neither labels nor pools
create or replace function engine.resolve_buckets(p_worker bigint, p_classes bigint[], p_buckets bigint[],
  out buckets bigint[], out members bigint[], out labels jsonb) language plpgsql as $$
declare
  v_label_limits text[];
  v_names text[] := '{}';
  v_pool text[] := '{}';
begin
  buckets := p_buckets;
  members := '{}';
  v_label_limits := array(
    select distinct a from sluice.class c, unnest(c.labels) a where c.labels is not null and c.id = any (p_classes));
  if exists (select 1 from sluice.limit_def d where d.members is not null) then
    v_pool := array(
      select d.name || ':' || m from unnest(p_buckets) b join sluice.bucket k on k.id = b and k.key = '*'
      cross join lateral (
        select p.name, p.members as keys from sluice.limit_def p
        where p.name = k.name order by p.version desc limit 1) d, unnest(d.keys) m);
  end if;
  if v_label_limits = '{}' and v_pool = '{}' then return; end if;
  select w.labels into labels from sluice.worker w where w.id = p_worker;
  v_names := array(
    select split_part(a, '@', 1) || ':' || (resolve_buckets.labels ->> split_part(a, '@', 2))
    from unnest(v_label_limits) with ordinality u (a, o) order by o);
  buckets := array(
    select coalesce(sluice.hash64(n.name), b.id) from unnest(p_buckets) with ordinality b (id, o)
    left join unnest(v_label_limits, v_names) n (label, name) on sluice.hash64(n.label) = b.id order by b.o);
  members := array(select sluice.hash64(m) from unnest(v_pool) m);
  perform engine.make_buckets(v_names || v_pool);
end $$;
