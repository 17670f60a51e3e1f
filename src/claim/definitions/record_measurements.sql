-- Records what a process has measured for its limits (limits/samples.ts), and deletes what other processes have not
-- written for two minutes: they have ended, and their last requests have left all windows of up to a minute. Only
-- limits with such windows have margins that shrink. What is in doubt stays for ten minutes, as in a process that
-- lives. A process that joins waits for changes of definitions that are under way, so that none of them makes a margin
-- smaller without knowing of it.
-- p_process: its id; p_host: its host.
-- p_seen: JSON with the columns of sluice.measured for each limit.
create or replace function engine.record_measurements(p_process uuid, p_host text, p_seen jsonb) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
begin
  if exists (
    select 1 from jsonb_to_recordset(p_seen) s (name text)
    where not exists (select 1 from sluice.measured m where m.name = s.name and m.process = p_process)) then
    perform pg_advisory_xact_lock(1397511523, -7);  -- lock: definitions
  end if;
  insert into sluice.measured as m
  select s.name, p_process, p_host, v_now, s.ages, s.age, s.late, s.answers, s.least, s.most, s.sound
  from jsonb_to_recordset(p_seen) s (
    name text, ages integer, age bigint, late real, answers bigint, least bigint, most bigint, sound boolean)
  order by s.name
  on conflict (name, process) do update set seen_at = v_now, ages = excluded.ages, age = excluded.age,
    late = excluded.late, answers = excluded.answers, least = excluded.least, most = excluded.most,
    sound = excluded.sound;
  delete from sluice.measured where ctid = any (array(
    select m.ctid from jsonb_to_recordset(p_seen) s (name text) join sluice.measured m on m.name = s.name
    where m.seen_at not between v_now - case when m.sound then interval '2 minutes' else interval '10 minutes' end
      and v_now + interval '1 minute'
    for update of m skip locked));
end $$;
