-- Stores the definition of a schedule, unless the schedule has advanced since it was read. Returns a row if it stored
-- it. The next instant alone would not show that: after two changes of the timing it may be what it was.
-- $1 name
-- $2 task
-- $3 timing, as `Timing.text`
-- $4 definition as JSON
-- $5 next instant, in ms since 1970
-- $6 next instant that was read; null: there was no such schedule
-- $7 last handled instant that was read; null: none
insert into sluice.schedule as s (name, task, timing, spec, next_at, defined_at)
values ($1, $2, $3, $4, to_timestamp($5::bigint / 1e3), sluice.now())
on conflict (name) do update
  set task = excluded.task, timing = excluded.timing, spec = excluded.spec, next_at = excluded.next_at,
      defined_at = case when s.spec = excluded.spec then s.defined_at else excluded.defined_at end, error = null
  where s.next_at = to_timestamp($6::bigint / 1e3)
    and s.last_at is not distinct from to_timestamp($7::bigint / 1e3)
returning s.name
