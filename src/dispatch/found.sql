-- Creates the lanes, classes and buckets that are not known yet, from the first job of each lane. A lane begins empty.
create or replace function sluice.found_v1(p_lanes bigint[], p_bounds bigint[]) returns void language plpgsql
  as $$
declare
  v_job sluice.job;
  v_class bigint;
  v_fair bigint;
begin
  for v_job in
    select j.* from unnest(p_lanes, p_bounds) a (lane, bound)
    cross join lateral (select * from sluice.job where lane = a.lane and seq >= a.bound order by seq limit 1) j
    where not exists (select 1 from sluice.lane l where l.id = a.lane)
  loop
    v_class := sluice.hash64(v_job.queue || E'\x1f' || v_job.task);
    -- Tenants are compared within the limit that they share: by default the first keyed one, else the class.
    v_fair := sluice.hash64(coalesce(v_job.fair, (select t from unnest(v_job.takes) t where t like '%:%' limit 1),
                                     v_job.queue || E'\x1f' || v_job.task));
    insert into sluice.class (id, queue, task) values (v_class, v_job.queue, v_job.task) on conflict do nothing;
    insert into sluice.bucket (id, name, key)
      select sluice.hash64(t), split_part(t, ':', 1), substr(t, length(split_part(t, ':', 1)) + 2)
      from unnest(v_job.takes) t on conflict do nothing;
    insert into sluice.lane (id, class, vstart, priority, bound, n, fair, buckets)
    values (v_job.lane, v_class, coalesce((select max(l.vstart) from sluice.lane l where l.fair = v_fair), 0),
            v_job.priority, v_job.seq, 0, v_fair,
            coalesce((select array_agg(distinct sluice.hash64(t)) from unnest(v_job.takes) t), '{}'));
  end loop;
end $$;
