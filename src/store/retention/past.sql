-- The partitions of history whose day has been over for longer than their jobs are kept (p_done_ms, p_failed_ms), the oldest
-- first; before: what finished until then may go. Some of their jobs may have finished later. A step of the store's clock makes
-- nothing older (shown_ago). p_cap: as of limiter_us.
create or replace function engine.past(p_done_ms bigint, p_failed_ms bigint, p_cap bigint)
returns table (parent text, name text, before timestamptz) language sql as $$
  select p.relname, c.relname, k.before
  from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_class c on c.oid = i.inhrelid
  join (values ('sluice.done'::regclass, p_done_ms), ('sluice.failed'::regclass, p_failed_ms)) t (parent, ms) on t.parent = i.inhparent
  cross join lateral (select engine.shown_ago(t.ms, p_cap) as before) k
  where c.relname ~ '_\d{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (k.before at time zone 'UTC')::date
  order by right(c.relname, 8), p.relname
$$;
