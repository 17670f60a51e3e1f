-- Records that the vendor refused a request, and holds the buckets that the refusal concerns: those of the request's
-- keys. A bucket that requests of several keys share is held only if three of those keys were refused within a second.
-- After the hold the bucket grants one request at a time, until the vendor accepts one (engine.accept_buckets).
-- If the vendor states no time, the hold is one second, and doubles with each refusal in a row, up to the shortest span
-- of the limit's rules (1 s to 60 s; 10 s if it counts only places). A refusal of a request that was sent before the
-- newest one in a row is not one more, and holds the bucket for longer only if the vendor states for how long.
-- p_buckets: the buckets that the refusal concerns.
-- p_shared: the request's other buckets.
-- p_wait_us: how long the vendor wants to be left alone; null: it stated no time.
-- p_age_us: how long ago the request got its grant, or longer.
-- p_cap: as for engine.limiter_now_us.
-- p_answer: the vendor's answer, for people.
-- held: the buckets that are held; wait_us: for how long at least.
create or replace function engine.refuse_buckets(
  p_buckets bigint[], p_shared bigint[], p_wait_us bigint, p_age_us bigint, p_cap bigint, p_answer text,
  out held bigint[], out wait_us bigint)
language plpgsql as $$
declare
  v_bucket bigint;
  v_most bigint;  -- the longest hold if the vendor states none
  v_n integer;
  v_is_new boolean;  -- the request was sent after the newest refusal in a row
  v_wait bigint;
  v_now bigint := engine.limiter_now_us(p_cap);
  v_sent constant bigint := v_now - p_age_us;
begin
  held := p_buckets || array(
    select s from unnest(p_shared) s
    where (select count(*) from sluice.refusal r
           where r.at > v_now - 1000000 and s = any (r.shared) and r.bucket <> all (p_buckets)) >= 2);
  perform engine.lock_buckets(held);
  v_now := engine.limiter_now_us(p_cap);
  wait_us := coalesce(p_wait_us, 0);
  foreach v_bucket in array held loop
    v_most := greatest(1000000, least(60000000, coalesce((
      select (select min(u.span) from unnest(d.span, d.kind) u (span, kind) where u.kind <> 'concurrency')
      from sluice.bucket b join sluice.limit_def d on d.name = b.name where b.id = v_bucket
      order by d.version desc limit 1), 10000000)));
    v_is_new := not exists (select 1 from sluice.refusal r where r.bucket = v_bucket and r.at >= v_sent);
    insert into sluice.refusal as r (bucket, shared, since, at, n, answer)
    values (v_bucket, p_shared, v_now, v_now, 1, p_answer)
    on conflict (bucket) do update set shared = excluded.shared, answer = excluded.answer, at = excluded.at, n = r.n + 1
      where v_is_new
    returning r.n into v_n;
    v_n := coalesce(v_n, (select r.n from sluice.refusal r where r.bucket = v_bucket));
    v_wait := least(v_most, 1000000 * (1 << least(v_n - 1, 10)));
    perform engine.hold_buckets(
      array[v_bucket], coalesce(p_wait_us, case when v_is_new then v_wait else 0 end), p_cap, null, v_wait);
    wait_us := greatest(wait_us, coalesce(p_wait_us, v_wait));
  end loop;
end $$;
