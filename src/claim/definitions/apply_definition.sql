-- Puts the definition that a limit's sources give in force, unless it is already; returns that definition. It waits for
-- all claims that are under way, also for those that make a bucket of this limit, because they may have decided by the
-- old definition. If the new definition has a concurrency it counts the running jobs, and it makes the lists that wait
-- for the limit due, because there may be room now, also where others had used the limit up in Redis. It forgets a
-- margin that was measured for other numbers, because nobody knows which processes have joined since. The worker whose
-- claim next meets a bucket has its state rebuilt (`engine.renew_buckets`). The caller holds the lock of definitions.
-- p_by, p_reason: who changes it, and why.
-- p_key: a key that has, or had, numbers of its own; its bucket has definitions of its own from then on. '': all other
-- keys; those that have definitions of their own follow, because everything but their numbers is the limit's.
create or replace function engine.apply_definition(p_name text, p_by text, p_reason text, p_key text default '')
returns sluice.limit_def
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_def constant sluice.limit_def := engine.effective_definition(p_name, p_key);
  v_at constant timestamptz := sluice.now();
  v_now bigint;
  -- A key had the definition of all others until it got one of its own.
  v_was constant sluice.limit_def := (select l from sluice.limit_def l
    where l.name = p_name and l.key in ('', p_key) order by l.key desc, l.version desc limit 1);
  v_bucket constant bigint := case when p_key <> '' then sluice.hash64(p_name || ':' || p_key) end;
  v_buckets bigint[];
  -- More than its margin changes.
  v_is_other constant boolean := v_was.spec - '{rules,grantUs,transitUs,measured}'::text[]
    <> v_def.spec - '{rules,grantUs,transitUs,measured}'::text[];
begin
  if v_def.name is null or (v_was.key, v_was.spec, v_was.source, v_was.lend_us)
    is not distinct from (p_key, v_def.spec, v_def.source, v_def.lend_us) then
    return v_def;
  end if;
  -- This waits for a claim that is about to make the bucket. A bucket that has definitions of its own stays.
  if p_key <> '' and not exists (select 1 from sluice.bucket b where b.id = v_bucket and b.def_key = p_key) then
    perform engine.make_buckets(array[p_name || ':' || p_key]); end if;
  perform engine.lock_buckets(array(select generate_series(0, 1023)::bigint));
  update sluice.bucket set def_key = p_key where id = v_bucket and def_key <> p_key;
  -- Raises an error if the server does not know its zone.
  perform engine.zone_offset_s(r -> 'quota' ->> 'zone', 0)
    from jsonb_array_elements(v_def.spec -> 'rules') r where r ? 'quota';
  if v_is_other then perform engine.end_used_holds(p_name); end if;
  if p_key = '' and not v_def.spec ? 'measured' then
    delete from sluice.limit_source where name = p_name and source = 'measured';
  end if;
  insert into sluice.limit_def (name, key, version, spec, kind, drain, weight, capacity, part_us, span, margin, periods,
    grant_us, created_at, source, by, reason, label, members, lend_us, own)
  values (p_name, p_key, coalesce((select max(l.version) from sluice.limit_def l where l.name = p_name), 0) + 1,
    v_def.spec, v_def.kind, v_def.drain, v_def.weight, v_def.capacity, v_def.part_us, v_def.span, v_def.margin,
    engine.calendar_periods(v_def, (extract(epoch from v_at) * 1000000)::bigint), v_def.grant_us, v_at,
    v_def.source, p_by, p_reason, v_def.spec ->> 'label',
    (select array_agg(m order by o) from jsonb_array_elements_text(v_def.spec -> 'pool') with ordinality m (m, o)),
    v_def.lend_us, v_def.own);
  v_now := engine.limiter_now_us();
  v_buckets := array(select b.id from sluice.bucket b where b.name = p_name and b.def_key = p_key);
  if 'concurrency' = any (v_def.kind) then perform engine.recount_places(p_name, v_bucket); end if;
  update sluice.list set due = v_now where due > v_now and id <> 0 and id = any (v_buckets);
  perform pg_notify('sluice.wake', '*');
  perform engine.notify_takers(v_buckets, v_now);
  if v_is_other then perform engine.call_back_grants_ahead(array[coalesce(v_bucket::text, p_name)]); end if;
  -- A bucket beside a share follows the limit itself, which is reported. What the fleet finds changes all the time.
  -- So does the margin, while the numbers stay.
  if v_is_other and position('/' in p_name) = 0
    and not (v_def.source = 'found' and v_was.source in ('code', 'found')) then
    perform engine.notify_event('limit', jsonb_build_object(
      'limit', p_name, 'source', v_def.source, 'by', p_by, 'reason', p_reason,
      'before', jsonb_build_array(v_was.spec -> 'numbers') || jsonb_path_query_array(v_was.spec, '$.beside[*].numbers'),
      'after', jsonb_build_array(v_def.spec -> 'numbers')
               || jsonb_path_query_array(v_def.spec, '$.beside[*].numbers'))
      || case when p_key <> '' then jsonb_build_object('key', p_key) else '{}' end);
  end if;
  -- The margin alone concerns only keys that have the same numbers.
  perform engine.apply_definition(p_name, p_by, p_reason, k.def_key)
  from (
    select b.def_key from sluice.bucket b where p_key = '' and b.name = p_name and b.def_key <> '' order by b.def_key) k
  where v_is_other or v_def.source <> v_was.source or v_def.spec -> 'numbers' = (
    select l.spec -> 'numbers' from sluice.limit_def l
    where l.name = p_name and l.key = k.def_key order by l.version desc limit 1);
  return v_def;
end $$;
