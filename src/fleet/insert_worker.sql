-- Inserts a worker process, and returns its id, which identifies it until it leaves or is given up.
-- $1 host, $2 pid, $3 version, $4 queues (null: all), $5 tasks, $6 slots, $7 labels, $8 stints
insert into sluice.worker (host, pid, version, queues, tasks, slots, labels, stints, started_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, sluice.now()) returning id
