-- Puts a definition of a limit in force, unless it is already. Waits for all claims under way, also those that just make a
-- bucket of this limit: they may have decided by the old definition. Then jobs that run are counted where it has a
-- concurrency that the old one had not, and lanes that wait for it are looked at again: the new one may have room.
-- Returns whether the definition was new. p_drain .. p_span: register_v1.
create or replace function sluice.define_v1(
  p_name text, p_spec jsonb, p_drain bigint[], p_weight bigint[], p_room bigint[], p_slot bigint[], p_span bigint[], p_grant_us bigint)
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now bigint;
begin
  if exists (select 1 from (select spec from sluice.limit_def where name = p_name order by version desc limit 1) l
             where l.spec = p_spec) then return false; end if;
  -- Before the buckets: who holds it off (counting_v1) may wait for those.
  perform pg_advisory_xact_lock(1397511523, -7);
  perform sluice.lock_v1(array(select generate_series(0, 1023)::bigint));
  if not sluice.register_v1(p_name, p_spec, p_drain, p_weight, p_room, p_slot, p_span, p_grant_us) then return false; end if;
  v_now := sluice.now_us();
  if 0 = any (p_drain) then
    perform sluice.running_v1(array_agg(r.bucket), array_agg(r.running)) from (
      select sluice.hash64(t) as bucket, count(*)::integer as running
      from sluice.claim c cross join unnest(c.lanes, c.seqs) h (lane, seq)
      join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
      cross join lateral (select distinct t from unnest(coalesce(j.holds, j.takes)) t) t
      where split_part(t, ':', 1) = p_name group by 1) r;
  end if;
  update sluice.list set due = v_now where due > v_now and id in (select id from sluice.bucket where name = p_name);
  return true;
end $$;
