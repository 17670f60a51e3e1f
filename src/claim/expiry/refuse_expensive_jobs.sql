-- Decides about jobs that claims have set aside because they cost more than one of their limits can grant at once
-- (`engine.set_aside_jobs`); 500 at most. Jobs that the newest code does not allow either end, because they could never
-- start: the limit was made smaller after they were sent. Jobs that only older code does not allow wait again in 15 s,
-- after which a definition ends that no live process has. Returns how many jobs it decided about. It waits for no row.
create or replace function engine.refuse_expensive_jobs() returns integer language plpgsql as $$
declare
  v_due constant timestamptz := sluice.now() + interval '15 seconds';
  v_job sluice.job;
  v_over record;
  v_count integer := 0;
begin
  for v_job in
    select * from sluice.job where due_at = 'infinity' and delay_reason = 'too-dear' limit 500 for update skip locked
  loop
    v_count := v_count + 1;
    select u.cost, substring(u.bucket from '^[^:*@]+') as name, d.most into v_over
    from unnest(v_job.buckets, v_job.costs) with ordinality u (bucket, cost, o)
    cross join lateral engine.newest_capacity(u.bucket) d (most) where u.cost > d.most order by u.o limit 1;
    if not found then
      update sluice.job set due_at = v_due, delay_reason = 'older-code' where id = v_job.id;
      continue;
    end if;
    delete from sluice.job where id = v_job.id;
    perform engine.record_failed_jobs(array[v_job], 'impossible', 'SLUICE_COST_ABOVE_CAPACITY',
      format('the job costs %s in limit "%s", which holds %s at most since it was made smaller, '
        'so it could never start: raise the limit and retry the job, or send smaller ones',
        v_over.cost, v_over.name, v_over.most));
  end loop;
  return v_count;
end $$;
