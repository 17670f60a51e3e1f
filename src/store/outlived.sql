-- The partitions of history whose day has been over for longer than their jobs are kept (p_done_ms, p_failed_ms) and
-- whose newest finish is that old too, the oldest first. Looks without locks: a job of that day may finish just then.
create or replace function sluice.outlived_v1(p_done_ms bigint, p_failed_ms bigint, p_now timestamptz)
returns table (parent text, name text, before timestamptz) language plpgsql stable set enable_seqscan = off set jit = off as $$
declare
  v_young boolean;
begin
  for parent, name, before in
    select p.relname, c.relname, k.before
    from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_class c on c.oid = i.inhrelid
    join (values ('sluice.done'::regclass, p_done_ms), ('sluice.failed'::regclass, p_failed_ms)) t (parent, ms) on t.parent = i.inhparent
    cross join lateral (select p_now - t.ms * interval '1 ms' as before) k
    where c.relname ~ '_\d{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (k.before at time zone 'UTC')::date
    order by right(c.relname, 8), p.relname
  loop
    execute format('select exists (select 1 from sluice.%I where finished_at >= $1)', name) into v_young using before;
    if not v_young then return next; end if;
  end loop;
end $$;
