-- Returns whether jobs come before the takers that wait for the same bucket (or member of a pool). Jobs and takers take
-- turns, measured by the units that each were granted since the other. The ledger has these, because the grants of
-- takers have ids of version 4 there, and all others of version 7. A turn is as long as the other side's last turn, but
-- at most a tenth of a second's worth of the limit, or the largest of the takers' grants if that is more. Jobs that do
-- not claim within half a second after their list was due (no free worker, a pause) lose their turn: the caller checks
-- that some wait (engine.jobs_due_at) or claim now.
create or replace function engine.jobs_have_turn(p_bucket bigint) returns boolean language plpgsql stable as $$
declare
  v_row record;
  v_most bigint;  -- the longest turn
  v_last boolean;  -- whether the last grant was a taker's
  v_run bigint := 0;  -- units of the present turn
  v_before bigint := 0;  -- units of the other side's last turn
begin
  select greatest(1, min(case when x.kind = 'window' then x.capacity * 100000 / x.span
                              when x.kind = 'concurrency' then x.capacity / 4
                              when x.kind in ('rate', 'quota') then
                                least(x.drain::numeric * 100000 / x.weight, x.capacity) end)) into v_most
  from (select d.* from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.key = b.def_key
        where b.id = p_bucket order by d.version desc limit 1) d,
       unnest(d.kind, d.drain, d.weight, d.capacity, d.span) x (kind, drain, weight, capacity, span);
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
