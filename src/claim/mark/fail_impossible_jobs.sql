-- Ends waiting jobs that cost more than one of their limits can ever grant at once, because the limit was made smaller
-- after they were sent. Such jobs could never start. It waits for no row, like `engine.expire_overdue_jobs`.
create or replace function engine.fail_impossible_jobs(p_ids uuid[]) returns void language plpgsql as $$
declare
  v_ids uuid[] := array(select id from sluice.job where id = any (p_ids) and claim is null for update skip locked);
  v_job sluice.job;
begin
  for v_job in with gone as (delete from sluice.job j where j.id = any (v_ids) returning j.*) select * from gone loop
    perform engine.record_failed_jobs(array[v_job], 'impossible', 'SLUICE_COST_ABOVE_CAPACITY', (
      select format('the job costs %s in limit "%s", which holds %s at most since it was made smaller, '
        'so it could never start: raise the limit and retry the job, or send smaller ones', u.cost, d.name, d.most)
      from unnest(v_job.takes, v_job.costs) with ordinality u (bucket, cost, o)
      cross join lateral (select l.name, (
        select min(r.room) from unnest(l.room, l.kind) with ordinality r (room, kind, o)
        where r.kind <> 'concurrency' and r.o <= coalesce(l.own, r.o)) as most
        from sluice.limit_def l where l.name = substring(u.bucket from '^[^:*@]+') order by l.version desc limit 1) d
      where u.cost > d.most order by u.o limit 1));
  end loop;
end $$;
