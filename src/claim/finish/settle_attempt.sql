-- Settles what an attempt has really used of one of its limits. Units that its grants have left over are refunded;
-- units beyond its grants become a debt. It acts once for each attempt and limit, so a repeated call is harmless. It
-- locks the job before buckets, as a finish does.
-- p_name: the limit
-- p_actual: the units that were used
-- p_grants, p_units: the attempt's grants, the oldest first, and the units of each
-- p_full: refund all at once (`engine.refund_units`)
-- lost: the claim no longer has the job
create or replace function engine.settle_attempt(
  p_job uuid, p_claim uuid, p_name text, p_actual bigint, p_grants uuid[], p_units bigint[], p_full boolean,
  p_cap bigint,
  out lost boolean)
language plpgsql set enable_seqscan = off set jit = off set lock_timeout = '3s' as $$
declare
  v_job sluice.job;
  v_done text[];
  v_buckets bigint[];
  v_bucket bigint;
  v_back bigint := (select coalesce(sum(u), 0) from unnest(p_units) u) - p_actual;
  v_left bigint;
  v_now bigint;
begin
  select * into v_job from sluice.job j where j.id = p_job and j.claim = p_claim for update;
  lost := not found;
  if lost then return; end if;
  -- Settlements of an earlier claim do not count.
  v_done := case when v_job.settled[1] = p_claim::text then v_job.settled else array[p_claim::text] end;
  -- A limit with a share has two buckets.
  v_buckets := array(select sluice.hash64(t)
    from unnest(coalesce(v_job.charged_buckets, v_job.buckets)) t where substring(t from '^[^:@*/]*') = p_name);
  if p_name = any (v_done[2:]) or v_buckets = '{}' then return; end if;
  update sluice.job j set settled = v_done || p_name where j.id = p_job;
  perform engine.lock_buckets_and_pools(v_buckets);
  v_now := engine.limiter_now_us(p_cap);
  foreach v_bucket in array v_buckets loop
    v_left := v_back;
    if v_left < 0 then perform engine.charge_overrun(v_bucket, p_claim, -v_left, v_now); end if;
    for i in 1 .. cardinality(p_grants) loop
      exit when v_left <= 0;
      perform engine.refund_units(v_bucket, p_grants[i], least(v_left, p_units[i]), p_full);
      v_left := v_left - p_units[i];
    end loop;
  end loop;
  if v_back > 0 then
    perform engine.make_lists_due(v_buckets, array_fill(v_back, array[cardinality(v_buckets)]), v_now); end if;
end $$;
