-- Gives back places of concurrency rules: so many of each bucket's jobs have ended. Other buckets are left alone. At
-- the bucket's own time, so no step of the clock gets in. Call under lock.
create or replace function engine.release(p_buckets bigint[], p_units integer[]) returns void language plpgsql as $$
begin
  perform engine.append_ledger(
    array(select r::engine.room from engine.room(p_buckets, 0) r where 'concurrency' = any (r.kind)),
    p_places => array(select -u from unnest(p_units) with ordinality p (u, o) order by o));
end $$;
