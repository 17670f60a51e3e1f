-- What the pool of a definition allows: the units that are free in its members together, and when the first of them has one.
-- Of a member that was never used all is free. Call under lock_v1 of the members to act on the answer.
create or replace function sluice.pool_v1(p_def sluice.limit_def, p_now bigint, p_further boolean,
  out avail bigint, out next bigint, out period bigint, out slack bigint) language plpgsql stable as $$
begin
  select sum(case when r.version is null then x.room else r.avail end), min(case when r.version is null then p_now else r.next end),
         greatest(1, min(r.period) / count(*)), min(r.slack)
  into avail, next, period, slack
  from sluice.room_v1(array(select sluice.hash64(p_def.name || ':' || m) from unnest(p_def.members) m), p_now, p_further) r
  cross join (select min(u) as room from unnest(p_def.room) u) x;
end $$;
