-- Returns what is parked and keeps a job from starting: the job, its lane, or buckets that it needs room in. Null:
-- nothing is parked.
create or replace function engine.find_parked_causes(p_job sluice.job) returns json language plpgsql stable as $$
begin
  return (
    select json_agg(json_build_object('kind', p.kind, 'name', p.name, 'error', p.error, 'code', p.code, 'at_ms',
      engine.unix_ms(p.at))
                    order by p.at, p.name)
    from sluice.parked p
    where p.job = p_job.id and p_job.due_at = 'infinity'
      or p.kind = 'lane' and p.id = p_job.lane and exists (select 1 from sluice.lane l where l.id = p.id and l.list = 1)
      or p.kind = 'bucket' and p.id in (select sluice.hash64(t) from unnest(p_job.buckets) t)
         and exists (select 1 from sluice.bucket b where b.id = p.id and b.parked));
end $$;
