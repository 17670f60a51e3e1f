-- Settles what an attempt has really used of one of its limits (p_name): p_actual units, where its grants (p_grants,
-- the oldest first) took p_units. Less goes back, as a refund of those grants (p_full: all of it at once); more is a
-- debt. Once for each attempt and limit: again it does nothing, and a repeated call is harmless. Answers lost when the
-- job is no more in the hands of its claim. p_cap: as for a claim. Jobs before buckets, as a finish.
create or replace function engine.settle(
  p_job uuid, p_claim uuid, p_name text, p_actual bigint, p_grants uuid[], p_units bigint[], p_full boolean,
  p_cap bigint,
  out lost boolean)
language plpgsql set enable_seqscan = off set jit = off as $$
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
  -- Of an earlier claim it says nothing.
  v_done := case when v_job.settled[1] = p_claim::text then v_job.settled else array[p_claim::text] end;
  -- Of a limit with a share it is two.
  v_buckets := array(select sluice.hash64(t)
    from unnest(coalesce(v_job.holds, v_job.takes)) t where substring(t from '^[^:@*/]*') = p_name);
  if p_name = any (v_done[2:]) or v_buckets = '{}' then return; end if;
  update sluice.job j set settled = v_done || p_name where j.id = p_job;
  perform engine.lock_to_give(v_buckets);
  v_now := engine.limiter_us(p_cap);
  foreach v_bucket in array v_buckets loop
    v_left := v_back;
    if v_left < 0 then perform engine.overrun(v_bucket, p_claim, -v_left, v_now); end if;
    for i in 1 .. cardinality(p_grants) loop
      exit when v_left <= 0;
      perform engine.refund(v_bucket, p_grants[i], least(v_left, p_units[i]), p_full);
      v_left := v_left - p_units[i];
    end loop;
  end loop;
  if v_back > 0 then perform engine.sooner(v_buckets, array_fill(v_back, array[cardinality(v_buckets)]), v_now); end if;
end $$;
