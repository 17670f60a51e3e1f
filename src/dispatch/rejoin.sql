-- Virtual start of a lane that has jobs again: not before those who have been waiting (no credit for idleness), and
-- at most 64 turns behind them (no lasting debt for having been alone).
create or replace function sluice.rejoin_v1(p_lane sluice.lane) returns bigint language plpgsql stable as $$
begin
  return (select coalesce(greatest(v.front, least(p_lane.vstart, v.front + 64000000)), p_lane.vstart)
  from (
    select min(h.vstart) as front
    from (select 0::bigint as list union all select unnest(p_lane.buckets)) s
    cross join lateral (
      select l.vstart from sluice.lane l
      where l.class = p_lane.class and l.list = s.list order by l.vstart limit 1) h
  ) v);
end $$;
