-- Returns the snapshot of the calling statement, with this transaction counted as still in progress. All other
-- transactions see it so; the next reader therefore reads what this one wrote.
-- p_own: the id of this transaction; null: it has none yet
create or replace function engine.snapshot_without_own(p_own xid8) returns pg_snapshot language plpgsql stable as $$
declare
  v_now constant pg_snapshot := pg_current_snapshot();
begin
  if p_own is null or p_own >= pg_snapshot_xmax(v_now) then return v_now; end if;
  return (select (pg_snapshot_xmin(v_now)::text || ':' || pg_snapshot_xmax(v_now) || ':'
                  || string_agg(x::text, ',' order by x))::pg_snapshot
          from (select pg_snapshot_xip(v_now) as x union select p_own) u);
end $$;
