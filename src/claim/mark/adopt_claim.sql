-- Returns the unfinished jobs of a claim without their inputs, to be handed out again; null: none. It never inserts a
-- claim, so a claim whose last job ends meanwhile returns nothing.
-- p_all: also those of the claims for its other instants (`engine.claims_of_instants`)
create or replace function engine.adopt_claim(p_claim uuid, p_all boolean default false) returns text
language plpgsql stable
  set enable_seqscan = off set jit = off as $$
declare
  v_ends constant uuid[] := case when p_all then array(
    select encode(set_byte(uuid_send(p_claim), 15, b), 'hex')::uuid from unnest('{0,255}'::integer[]) b)
    else array[p_claim, p_claim] end;
begin
  return (
    select '[[' || string_agg(engine.encode_job(j, d.life, false, null, sluice.now()), '],[') || ']]'
    from sluice.claim c cross join unnest(c.lanes, c.seqs) h (lane, seq)
    join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
    cross join lateral (
      select min(l.grant_us) as life from unnest(j.takes) t cross join lateral (
        select k.grant_us from sluice.limit_def k
        where k.name = substring(t from '^[^:@*]*') order by k.version desc limit 1) l) d
    where c.id between v_ends[1] and v_ends[2]);
end $$;
