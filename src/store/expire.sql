-- Drops one partition of history whose range ended more than p_keep_days ago and whose newest finish is that old too.
-- Returns its name; null when there is none. It looks without a lock first, and again under the lock: a job of that day
-- may have finished in between. Parent before partition, as a finish locks them. Gives up, until the next round, rather
-- than keep finishes waiting behind somebody's long query.
create or replace function sluice.expire_v1(p_keep_days integer) returns text language plpgsql
  set lock_timeout = '200ms' set enable_seqscan = off set jit = off as $$
declare
  v_before timestamptz := sluice.now() - make_interval(days => p_keep_days);
  v_old record;
  v_look text;
  v_young boolean;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return null; end if;
  for v_old in
    select p.relname::text as parent, c.relname::text as name
    from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_class c on c.oid = i.inhrelid
    where i.inhparent in ('sluice.done'::regclass, 'sluice.failed'::regclass) and c.relname ~ '_\d{8}$'
      and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (v_before at time zone 'UTC')::date
    order by right(c.relname, 8)
  loop
    v_look := format('select exists (select 1 from sluice.%I where finished_at >= $1)', v_old.name);
    execute v_look into v_young using v_before;
    continue when v_young;
    begin
      execute format('lock table only sluice.%I in access exclusive mode', v_old.parent);
      execute format('lock table sluice.%I in access exclusive mode', v_old.name);
      execute v_look into v_young using v_before;
      -- The locks are held until the end: no time for the next one.
      if v_young then return null; end if;
      execute format('drop table sluice.%I', v_old.name);
      return v_old.name;
    exception when lock_not_available then return null;
    end;
  end loop;
  return null;
end $$;
