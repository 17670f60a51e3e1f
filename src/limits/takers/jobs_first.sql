-- Whether jobs come first at a bucket (or member of a pool) that takers outside of jobs wait for too: they take turns,
-- by the units that each had since the other (the ledger knows; grants outside of jobs have ids of version 4 there). A
-- turn is as long as the other's last one, but no longer than a tenth of a second's worth of the limit, or the largest
-- of the takers' grants. Jobs that do not come for half a second after their list was due (no free worker, a pause) let
-- their turn pass.
create or replace function engine.jobs_first(p_bucket bigint, p_now bigint, p_here boolean default false)
returns boolean language plpgsql stable as $$
declare
  v_row record;
  v_most bigint;  -- the longest turn
  v_last boolean;  -- who had the last grant: true = a taker
  v_run bigint := 0;  -- units since the other had one
  v_before bigint := 0;  -- units of the other's last turn
begin
  if not p_here and engine.awaited(p_bucket, p_now) is null then return false; end if;
  select greatest(1, min(case x.kind when 'window' then x.room * 100000 / x.span when 'concurrency' then x.room / 4
                              else least(x.drain::numeric * 100000 / x.weight, x.room) end)) into v_most
  from (select d.* from sluice.bucket b join sluice.limit_def d on d.name = b.name
        where b.id = p_bucket order by d.version desc limit 1) d,
       unnest(d.kind, d.drain, d.weight, d.room, d.span) x (kind, drain, weight, room, span);
  for v_row in
    select l.units, get_byte(uuid_send(l.claim), 6) >> 4 = 4 as outside from sluice.ledger l
    where l.bucket = p_bucket and l.units > 0 and l.claim is not null order by l.at desc, l.n desc limit 100
  loop
    v_last := coalesce(v_last, v_row.outside);
    if v_row.outside then v_most := greatest(v_most, v_row.units); end if;
    if v_row.outside <> v_last then v_before := v_before + v_row.units;
    elsif v_before = 0 then v_run := v_run + v_row.units;
    else exit; end if;
    exit when v_before > v_run and v_most > v_run;
  end loop;
  return v_last is not null and v_last = (v_run >= least(v_before, v_most));
end $$;
