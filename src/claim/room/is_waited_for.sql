-- Returns whether jobs of another class, or takers, wait for one of these buckets, or units of it are reserved: if it
-- were granted ahead of time (`engine.grant_ahead`), they would find it without room each time. Also if the jobs of the
-- class run at most once, because all that a killed worker had claimed would end as doubtful.
-- p_now: the limiter's clock, in microseconds
create or replace function engine.is_waited_for(p_class bigint, p_buckets bigint[], p_now bigint) returns boolean
language plpgsql stable as $$
begin
  return exists (select 1 from sluice.class c join sluice.task t on t.name = c.task where c.id = p_class and t.once)
    or exists (select 1 from sluice.list l where l.id = any (p_buckets) and l.id <> 0 and l.class <> p_class)
    or exists (select 1 from sluice.reservation r where r.bucket = any (p_buckets))
    or exists (select 1 from sluice.taker t where t.bucket = any (p_buckets) and t.alive_until > p_now);
end $$;
