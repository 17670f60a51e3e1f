-- Composite types that the functions of this release pass to each other. They are in the schema of the functions, not
-- of the tables, because a release may change them.
--
-- Parameters and results that recur in the functions of a claim. They are explained here once, and those of all modules
-- in limits/records.sql; a header explains only what differs.
-- p_claimer, and p_claim, p_worker, p_want, p_begun, p_since, and p_ahead if it is a number: as in engine.claimer.
-- p_ahead, if it is an engine.ahead: what `engine.grant_lanes_ahead` has decided to grant ahead of time.
-- p_found: the lanes that `engine.select_lanes` has selected. p_room: what their buckets allow.
-- p_most: how many lanes to look at.
-- p_classes: classes, locked. p_new: those of them in which no job waited until now.
-- p_lanes: the lanes of the claim; p_lane: the only one. p_buckets: their buckets, under the ids that the lanes use.
-- p_rooms: what these allow, by position (`engine.read_claim_room`); that of a label is of the worker's own bucket.
-- p_labels: the worker's labels; null: there are neither labels nor pools.
-- p_blocked: by position in p_buckets, the bucket that denied each lane; 0: none did.
-- jobs: the claimed jobs, as JSON for `decodeJobs` of claim/claimed-job.ts.
-- instants: when each of the jobs may begin, in order, in the limiter's time; null: all may begin now.
-- on_trial: the vendor has refused requests of a bucket that may grant one now (`engine.refuse_buckets`).
-- stale: buckets whose state has to be rebuilt first (`engine.renew_buckets`), so nothing was granted; null: none.
-- redis_epoch: the epoch under which the same units can be reserved in Redis; null: no limit is in Redis.

-- A worker that claims. claim, worker: the claim's id, and the worker's. want: how many jobs may begin now, at most.
-- ahead: how many jobs to grant at most if some are granted ahead of time, at least want; the worker starts each job at
-- its instant. 0: none may be; null: nothing is granted ahead here. begun: the limiter clock when the claim began.
-- since: no list and no scheduled job was due before this time, in the limiter's time, as an earlier answer showed.
-- cap: the latest time that the limiter clock can show, as in p_cap.
create type engine.claimer as (
  claim uuid, worker bigint, want integer, ahead integer, begun bigint, since bigint, cap bigint);

-- Lanes that a claim has selected, in fair order (`engine.select_lanes`). starts: the virtual start of each lane's fair
-- key; beside other classes it includes the class's lift. turns: the same without that lift, as the lanes have it
-- (vstart). steps: what a unit of each lane adds to the turn of its fair key. horizon: the virtual start of the first
-- fair key that was not read; null: all were read. cut: some lanes of a fair key were not read.
create type engine.candidates as (
  lanes sluice.lane[], starts bigint[], turns bigint[], steps bigint[], horizon bigint, cut boolean);

-- What buckets allow, read under their locks (`engine.read_claim_room`). now_us: the time of the decision, in
-- microseconds. at: what the store's clock shows then. buckets: the buckets, under the ids that lanes use. members: the
-- members of the pools among them. rooms: what the buckets, and then the members, allow, as `engine.recorded_room`
-- returns it, without units that are reserved or that waiting takers have the turn for; `engine.append_ledger` goes on
-- from it. first: lanes that units are reserved for, by position, the oldest reservation first; null: no units of these
-- buckets are reserved. on_trial, stale: as above.
create type engine.claim_room as (
  now_us bigint, at timestamptz, buckets bigint[], members bigint[], rooms engine.room[], first integer[],
    on_trial boolean, stale bigint[]);

-- The room of buckets, divided among lanes (`engine.divide_room`). take: how many jobs each lane gives. blocked: the
-- position of the bucket that denied each lane; 0: none did. If some lanes have costs: of, seqs: the lane and the seq
-- of each selected job of these lanes; over: 1 for a lane with costs that has no further jobs. more: some lanes have
-- more jobs than were read.
create type engine.division as (
  take integer[], blocked integer[], of bigint[], seqs bigint[], over integer[], more boolean);

-- The findings of a claim in one lane: jobs that it could start, how many of them it took, the last of their seqs,
-- whether there are more; the lane's rank by the next job (by the last one, if there is none); and the units by which
-- the jobs taken advance the turn (turn_units; null: one for each job).
create type engine.move as (
  lane bigint, seen integer, taken integer, last bigint, more boolean, rank integer, turn_units bigint);

-- The result of a claim. now_us: the limiter's time of its decision. granted: how many jobs it claimed. again: the next
-- claim should follow at once. soon: it should follow within 250 ms, because another transaction has locked a job,
-- because classes or lanes were left out, or because it emptied a lane that was blocked: a sender that saw it blocked
-- notified nobody. fits: false when `engine.claim_lone_lane` met another case. of, taken: the
-- class of each lane that was served, and how many of its jobs were claimed. changed: lanes are not as they were, so
-- the next claim may get jobs of the ready lanes that are left. Null: this claim did not look; decide by again and
-- soon.
create type engine.claimed as (
  now_us bigint, granted integer, again boolean, jobs text, soon boolean, on_trial boolean, fits boolean, of bigint[],
    taken integer[], instants bigint[], stale bigint[], changed boolean);

-- The jobs that a claim marked: how many it has, their JSON (claim/claimed-job.ts), and the move of each lane; the lane
-- and the seq of each job; and what they charge to each bucket, as in `engine.append_ledger`. fewer: a job went away
-- while it was marked.
create type engine.marked as (
  granted integer, jobs text, moves engine.move[], lanes bigint[], seqs bigint[], units bigint[], places bigint[],
    fewer boolean);

-- A list that lanes wait in, while claim/lanes/update_lists.sql updates it: its row (row_id; null: there is none yet),
-- when it is due from now on, the farthest turn that was assigned (far), its front turn now
-- (null: the list is empty), what the next job there needs of its bucket (null: one unit), and how long before the
-- bucket has room the list is due.
create type engine.due_list as (
  class bigint, id bigint, row_id tid, due bigint, far bigint, front bigint, period bigint, slack bigint,
    need bigint, early_us bigint);

-- The arrivals of a class: its lanes, with the first seq and the number of jobs of each; and the state of the class
-- after they are absorbed (claim/arrivals/read_arrivals.sql). rest: more is left.
create type engine.news as (
  lanes bigint[], bounds bigint[], counts bigint[], state sluice.class_state, fresh boolean, rest boolean);

-- The parameters with which a claim is repeated, and rolled back, to find the data that it fails on
-- (claim/parking/rehearse_claim.sql): worker, its labels, number of jobs and cap as in claim/claim_jobs.sql; the class;
-- the arrivals of the class; and the lane whose jobs are tried.
create type engine.rehearsal as (
  worker bigint, labels jsonb, want integer, cap bigint, class bigint, news engine.news, lane bigint);

-- A bucket or lane, or a job by its seq, on whose data a rehearsal fails: the SQLSTATE and the error.
create type engine.fault as (id bigint, code text, error text);
