-- Returns the partitions of history whose day ended longer ago than their jobs are kept, the oldest first. Some of
-- their jobs may have finished later. A step of the store's clock does not make a partition older
-- (`engine.store_time_ago`).
-- p_done_ms, p_failed_ms: how long finished and failed jobs are kept.
-- before: jobs that finished before this time may be deleted.
create or replace function engine.find_old_partitions(p_done_ms bigint, p_failed_ms bigint, p_cap bigint)
returns table (parent text, name text, before timestamptz) language sql as $$
  select p.relname, c.relname, k.before
  from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_class c on c.oid = i.inhrelid
  join (values ('sluice.done'::regclass, p_done_ms), ('sluice.failed'::regclass, p_failed_ms)) t (parent, ms)
    on t.parent = i.inhparent
  cross join lateral (select engine.store_time_ago(t.ms, p_cap) as before) k
  where c.relname ~ '_\d{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (k.before at time zone 'UTC')::date
  order by right(c.relname, 8), p.relname
$$;
