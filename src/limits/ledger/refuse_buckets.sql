-- Records a bad answer of the vendor's: a refusal, or a failure that opens a circuit (takes/circuit.ts).
-- `recordRefusal` in takes/acquire.ts calls it. It holds the buckets that this concerns (takes/concerned-buckets.ts:
-- those of the limit that the vendor names, else those of the request's keys, else all). One of the request's other
-- buckets is held only if three of the keys that share it were refused within a second. After
-- the hold the bucket grants one request at a time, until the vendor accepts one (engine.accept_buckets). It holds
-- them for as long as the vendor states; if the vendor states no time, engine.trial_interval decides (a second to a
-- minute, after refusals). A bad answer counts as one more in a row only if its request was sent after the newest bad
-- answer arrived. Any other one lengthens the hold only if the vendor states a time.
-- p_buckets: the buckets that it concerns.
-- p_shared: the request's other buckets.
-- p_wait_us: how long the vendor wants to be left alone (`Retry-After`); null: it stated no time.
-- p_age_us: how long ago the request got its grant, or longer.
-- p_answer: the vendor's answer, for people.
-- p_cause, p_host: as in sluice.refusal.
-- p_again: holds only buckets that are on trial already, and keeps the causes for which they are held.
-- held: the buckets that are held; wait_us: for how long at least.
create or replace function engine.refuse_buckets(
  p_buckets bigint[], p_shared bigint[], p_wait_us bigint, p_age_us bigint, p_cap bigint, p_answer text,
  p_cause text default 'refused', p_host text default null, p_again boolean default false,
  out held bigint[], out wait_us bigint)
language plpgsql as $$
declare
  v_bucket bigint;
  v_row sluice.refusal;
  v_is_new boolean;  -- the request was sent after the newest bad answer in a row
  v_goes_on boolean;  -- this answer and the newest one are both about the credential, or neither is
  v_wait bigint;
  v_now bigint := engine.limiter_now_us(p_cap);
  v_sent constant bigint := v_now - p_age_us;
begin
  held := p_buckets || array(
    select s from unnest(p_shared) s
    where (select count(*) from sluice.refusal r
           where r.at > v_now - 1000000 and s = any (r.shared) and r.bucket <> all (p_buckets)) >= 2);
  if p_again then
    held := array(select r.bucket from sluice.refusal r where r.bucket = any (p_buckets));
  end if;
  perform engine.lock_buckets(held);
  v_now := engine.limiter_now_us(p_cap);
  wait_us := coalesce(p_wait_us, 0);
  foreach v_bucket in array held loop
    v_is_new := not exists (select 1 from sluice.refusal r where r.bucket = v_bucket and r.at >= v_sent);
    v_goes_on := p_again or exists (
      select 1 from sluice.refusal r
      where r.bucket = v_bucket and (r.cause = 'credential') = (p_cause = 'credential'));
    insert into sluice.refusal as r (bucket, shared, since, at, n, answer, cause, host)
    values (v_bucket, p_shared, v_now, v_now, 1, p_answer, p_cause, p_host)
    on conflict (bucket) do update set shared = excluded.shared, answer = excluded.answer, at = excluded.at,
      n = case when v_goes_on then r.n + 1 else 1 end, since = case when v_goes_on then r.since else v_now end,
      cause = case when p_again then r.cause else p_cause end, host = case when p_again then r.host else p_host end
    where v_is_new;
    select * into v_row from sluice.refusal r where r.bucket = v_bucket;
    v_wait := engine.trial_interval(v_row.cause, v_bucket, v_row.n, v_now - v_row.since);
    perform engine.hold_buckets(
      array[v_bucket], coalesce(p_wait_us, case when v_is_new then v_wait else 0 end), p_cap, null, v_wait);
    wait_us := greatest(wait_us, coalesce(p_wait_us, v_wait));
  end loop;
end $$;
