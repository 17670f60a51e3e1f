-- Decides when a worker of these classes claims again, after a claim that got fewer jobs than it wanted. A claim moves
-- each lane for which a bucket has no room into the list of that bucket. So lanes that are left in a ready list were
-- not read, or their room went to a lane that had fewer jobs: then the next claim follows at once. They may also be
-- left because a label of this worker has no room; such classes do not count. Otherwise the worker sleeps until the
-- first job is due, or until the bucket that frees first has a unit that no other sleeper will take. A worker takes
-- all there is when it wakes. If claims grant ahead, it takes as many units as it has slots, at most those that become
-- free until `engine.most_ahead_us`. It takes three times as many if its list is due 80 ms early, because that shows
-- that jobs wait beside the slots (`engine.grant_lanes_ahead`): twice as many as there are slots may
-- (claim/ahead-jobs.ts). A worker that wakes too early finds nothing; when a sleeper would wake so late that units are
-- lost, this worker wakes before it. A claim ahead of time comes a quarter of `early_us` later: in the simulation of
-- test/claim/sleep.test.ts 8 workers then made 0.33 claims a job at 20/s, and 0.67 without that quarter.
-- p_classes: the worker's classes that no gate holds back
-- p_tasks: the only tasks of which the worker can start a job now; null: all of its tasks.
-- p_idle: register the worker as idle
-- p_labels: the worker's labels; null: no class requires a label. When a limit by one of them bars a class, the worker
-- sleeps until that limit has room for the next job, whatever else the class waits for.
-- p_job: when the first scheduled job is due, in microseconds; null: none is scheduled
-- p_changed: as in `engine.claimed`. If ready lanes are left and nothing changed, a claim at once would get nothing
-- either: so the worker sleeps until its label has the units that are kept for one of their jobs, or for 250 ms.
-- again: the next claim should follow at once
-- wake_us: how long to sleep, in microseconds; null: until it is notified
create or replace function engine.plan_next_wake(
  p_worker bigint, p_tasks text[], p_classes bigint[], p_now bigint, p_since bigint, p_idle boolean, p_labels jsonb,
  p_job bigint, p_changed boolean, out again boolean, out wake_us bigint)
language plpgsql as $$
declare
  v_wait record; v_barred bigint[] := '{}'; v_bar record; v_wake record; v_due bigint;
  v_soon bigint := p_now + 250000;
  v_ready boolean;  -- lanes are left in the ready lists of classes that no label bars
  v_free bigint;   -- when a unit is free
  v_slack bigint;  -- how long the unit may wait for a worker, so that the worker takes more at once
  v_late bigint;   -- how much later a worker comes than that; a sleeper right after it would mostly come too early
  v_reach bigint;  -- for how long one claim ahead of time grants, with some ms for a worker that comes late
begin
  if p_labels is not null then
    select b.* into v_bar from engine.find_classes_without_room(p_labels, p_classes, p_now) b;
    v_barred := v_bar.classes;
    v_soon := case when not v_bar.kept then v_soon end;
  end if;
  again := false;
  if p_changed is not null then
    v_ready := exists (
      select 1 from unnest(p_classes) c where c <> all (v_barred)
        and (select l.due from sluice.list l where l.class = c and l.id = 0 order by l.v desc limit 1) is not null);
    again := v_ready and p_changed; if again then return; end if;
  end if;
  select w.* into v_wait from (select c from unnest(p_classes) c where c <> all (v_barred)) c (id)
  cross join lateral (
    select l.id, l.due, l.period, l.slack, l.early_us from sluice.list l
    where l.class = c.id and l.due > p_since and l.id <> 0 order by l.due limit 1) w
  order by w.due limit 1;
  if p_labels is not null then
    if v_bar.due < coalesce(v_wait.due, 9223372036854775807) then
      v_wait.id := v_bar.bucket; v_wait.due := v_bar.due; v_wait.period := v_bar.period; v_wait.slack := v_bar.slack;
      v_wait.early_us := 0;
    end if;
  end if;
  if v_wait.id is not null then
    -- A claim before the list is due finds nothing. So one ahead of time is planned a quarter of `early_us` later, when
    -- three quarters are left, because the claim before it may come later than planned, and then grants until later.
    v_free := v_wait.due + v_wait.early_us / 4;
    v_slack := case when v_wait.early_us > 0 then 0 else least(v_wait.slack, 50000) end;
    v_late := greatest(0, least(v_wait.period / 20, 5000) - v_slack);
    v_reach := engine.most_ahead_us() - v_wait.early_us * 3 / 4;
    v_reach := greatest((1 + v_reach / nullif(v_wait.period, 0)) * v_wait.period, v_reach + v_wait.early_us / 10);
    for v_wake in
      select i.wake_at as at, case when v_wait.early_us = 0 then v_wait.period + v_late
        else least(v_wait.period * w.slots * case when v_wait.early_us < 80000 then 1 else 3 end, v_reach) end as takes
      from sluice.idle i join sluice.worker w on w.id = i.worker
      where i.bucket = v_wait.id and i.wake_at > p_now and i.worker <> p_worker
        -- A list that is due already has room that this claim gave to a lane with fewer jobs, and is left to nobody.
        and (v_wait.due > p_now or v_wait.early_us > 0) order by 1
    loop
      exit when v_wake.at > v_free + greatest(2 * v_slack, v_wait.period, v_wait.early_us);
      if v_wake.at >= v_free - greatest(v_wait.period / 20, v_wait.early_us / 2) then
        v_free := greatest(v_wake.at, v_free) + v_wake.takes;
      end if;
    end loop;
    v_due := v_free + v_slack;
  end if;
  -- A job that is due already: the caller promotes it, unless another worker does, or a transaction has locked it.
  v_due := least(v_due, case when v_ready then v_soon end, case when p_job <= p_now then p_now + 250000 else p_job end);
  if p_idle and not exists (
    select 1 from sluice.idle i where i.worker = p_worker and (i.tasks, i.bucket, i.wake_at, i.barred)
      is not distinct from (p_tasks, v_wait.id, coalesce(v_due, 0), nullif(v_barred, '{}')))
  then
    insert into sluice.idle (worker, tasks, bucket, wake_at, barred)
    values (p_worker, p_tasks, v_wait.id, coalesce(v_due, 0), nullif(v_barred, '{}'))
    on conflict (worker) do update set tasks = excluded.tasks, bucket = excluded.bucket, wake_at = excluded.wake_at,
      barred = excluded.barred;
  end if;
  wake_us := case when v_due is not null then greatest(v_due - p_now, 0) end;
end $$;
