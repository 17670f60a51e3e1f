-- Gives back places of concurrency rules, because jobs have ended. Skips buckets without such a rule. The rows have the
-- bucket's own time, so that no step of the clock matters. The caller has locked the buckets.
-- p_buckets: their ids.
-- p_units: how many of each bucket's jobs have ended, in the same order.
create or replace function engine.release_places(p_buckets bigint[], p_units integer[])
returns void language plpgsql as $$
declare
  v_rooms engine.room[] := engine.bucket_room(p_buckets, 0);
begin
  perform engine.append_ledger(
    array(select r::engine.room from unnest(v_rooms) r where 'concurrency' = any (r.kind)),
    p_places => array(select -u from unnest(p_units) with ordinality p (u, o) order by o));
end $$;
