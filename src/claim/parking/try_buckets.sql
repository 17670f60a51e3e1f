-- Grants units of these buckets as a claim of p_rehearsal would, to see whether that fails; the caller rolls it back
-- (`engine.rehearse_claim`).
create or replace function engine.try_buckets(p_rehearsal engine.rehearsal, p_buckets bigint[])
returns void language plpgsql as $$
declare
  v_claim constant uuid := gen_random_uuid();
  v_now bigint;
  v_units bigint[];
  v_given bigint[];
begin
  perform engine.lock_buckets(p_buckets);
  perform engine.renew_bucket_states(p_buckets, p_rehearsal.cap);
  v_now := engine.limiter_now_us(p_rehearsal.cap);
  v_units := array(select least(r.avail, greatest(p_rehearsal.want, 1))
    from unnest(engine.bucket_room(p_buckets, v_now)) r order by r.ord);
  perform engine.append_ledger(
    engine.bucket_room(p_buckets, v_now), v_claim, v_units, v_units);
  -- Granted units may be given back, and lanes wait for the next unit: both must work.
  perform engine.refund_units(b, v_claim, u) from unnest(p_buckets, v_units) t (b, u) where u > 0;
  perform engine.release_places(p_buckets, v_units::integer[]);
  v_given := array(select r.next
    from unnest(engine.bucket_room(p_buckets, v_now, false, array_fill(2::bigint, array[cardinality(p_buckets)]))) r);
end $$;
