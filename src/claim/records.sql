-- What the functions of this module hand to each other. The types stand beside the functions, not beside the tables, because a
-- release may change them.

-- What a claim found in one lane: rows looked at, rows taken, the last seq looked at, rows that had expired, whether
-- there are more; the rank, but for priority, of the next job (of the last one, where there is none); and by how many
-- units the jobs taken move the turn on (null: one for each job).
create type engine.move as (
  lane bigint, seen integer, taken integer, last bigint, late integer, more boolean, head integer, turn bigint);

-- A list that lanes wait in, as keep_lists.sql has it in hand: its row (place; null: there is none yet), floor and due
-- as it was found, the farthest turn that was given (far), its front turn now (null: nobody
-- stands there), and what the next job there needs of its bucket (null: one unit).
create type engine.waiting as (
  class bigint, id bigint, place tid, floor bigint, due bigint, far bigint, front bigint, period bigint, slack bigint,
    need bigint);

-- What has arrived for a class: its lanes, and of each the first seq and how many jobs; and the state of the class when
-- that has been dealt with (read_arrivals.sql). rest: more is left. future: the data are of another server, begin anew.
create type engine.news as (
  lanes bigint[], bounds bigint[], counts bigint[], state sluice.class_state, fresh boolean, rest boolean,
    future boolean);

-- What a claim is repeated with to find out by what it fails (probe.sql): by whom and for how many jobs, as claim.sql
-- has it; the class; what has arrived for it; and the lane whose jobs are tried.
create type engine.trial as (
  worker bigint, labels jsonb, want integer, cap bigint, class bigint, news engine.news, lane bigint);

-- A bucket or lane, or a job by its seq, by whose data a trial fails: with which SQLSTATE, and the error.
create type engine.fault as (id bigint, code text, error text);
