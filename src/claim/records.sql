-- Composite types that the functions of this release pass to each other. They are in the schema of the functions, not
-- of the tables, because a release may change them.
--
-- Parameters and results that recur in the functions of a claim. They are explained here once, and those of all modules
-- in limits/records.sql; a header explains only what differs.
-- p_claim, p_worker: the claim's id, and the worker.
-- p_begun: the limiter clock when the claim began.
-- p_want: how many jobs may begin now, at most.
-- p_ahead, if it is a number: how many jobs to grant at most if some are granted ahead of time, at least p_want. The
-- caller starts each job at its instant. 0: none may be; null: this function grants nothing ahead.
-- p_ahead, if it is an engine.ahead: what `engine.grant_lanes_ahead` has decided to grant ahead of time.
-- p_since: no list and no scheduled job was due before this time, in the limiter's time, as an earlier answer showed.
-- p_most: how many lanes to look at.
-- p_classes: classes, locked. p_new: those of them in which no job waited until now.
-- p_lane, p_lanes: the lanes of the claim. p_buckets: their buckets, under the ids that the lanes use.
-- p_rooms: what these allow, by position (`engine.read_claim_room`); that of a label is of the worker's own bucket.
-- p_labels: the worker's labels; null: there are neither labels nor pools.
-- p_members: the buckets of the pools' members.
-- p_blocked: by position in p_buckets, the bucket that denied each lane; 0: none did.
-- jobs: the claimed jobs, as JSON for `decodeJobs` of claim/claimed-job.ts.
-- instants: when each of the jobs may begin, in order, in the limiter's time; null: all may begin now.
-- probing: the vendor has refused requests of a bucket that may grant one now (`engine.refuse_buckets`).
-- stale: buckets whose state has to be rebuilt first (`engine.renew_buckets`), so nothing was granted; null: none.
-- redis_epoch: the epoch under which the same units can be reserved in Redis; null: no limit is in Redis.

-- The findings of a claim in one lane: jobs that it could start, how many of them it took, the last of their seqs,
-- whether there are more; the lane's rank by the next job (by the last one, if there is none); and the units by which
-- the jobs taken advance the turn (turn_units; null: one for each job).
create type engine.move as (
  lane bigint, seen integer, taken integer, last bigint, more boolean, rank integer, turn_units bigint);

-- The result of a claim. now_us: the limiter's time of its decision. granted: how many jobs it claimed. again: the next
-- claim should follow at once. soon: it should follow within 250 ms, because another transaction has locked a job,
-- because classes or lanes were left out, or because it emptied a lane that was blocked: a sender that saw it blocked
-- notified nobody. served: false when `engine.claim_lone_lane` met another case. of, taken: the
-- class of each lane that was served, and how many of its jobs were claimed. changed: lanes are not as they were, so
-- the next claim may get jobs of the ready lanes that are left. Null: this claim did not look; decide by again and
-- soon.
create type engine.served as (
  now_us bigint, granted integer, again boolean, jobs text, soon boolean, probing boolean, served boolean, of bigint[],
    taken integer[], instants bigint[], stale bigint[], changed boolean);

-- The jobs that a claim marked: how many it has, their JSON (claim/claimed-job.ts), and the move of each
-- lane.
create type engine.marked as (granted integer, jobs text, moves engine.move[]);

-- A list that lanes wait in, while claim/lanes/update_lists.sql updates it: its row (row_id; null: there is none yet),
-- when it is due from now on, the farthest turn that was assigned (far), its front turn now
-- (null: the list is empty), what the next job there needs of its bucket (null: one unit), and how long before the
-- bucket has room the list is due.
create type engine.waiting as (
  class bigint, id bigint, row_id tid, due bigint, far bigint, front bigint, period bigint, slack bigint,
    need bigint, lead bigint);

-- The arrivals of a class: its lanes, with the first seq and the number of jobs of each; and the state of the class
-- after they are absorbed (claim/arrivals/read_arrivals.sql). rest: more is left.
create type engine.news as (
  lanes bigint[], bounds bigint[], counts bigint[], state sluice.class_state, fresh boolean, rest boolean);

-- The parameters with which a claim is repeated to find the data that it fails on (claim/parking/probe_claim.sql):
-- worker, its labels, number of jobs and cap as in claim/claim_jobs.sql; the class; the arrivals of the class; and the
-- lane whose jobs are tried.
create type engine.trial as (
  worker bigint, labels jsonb, want integer, cap bigint, class bigint, news engine.news, lane bigint);

-- A bucket or lane, or a job by its seq, on whose data a trial fails: the SQLSTATE and the error.
create type engine.fault as (id bigint, code text, error text);
