-- Classes have clocks of their own. What the turns of one are to be put forward by where it is compared with others.
alter table sluice.class add column lift bigint not null default 0;

-- These have other parameters or columns now.
drop function if exists sluice.send_lane_v1(bigint, bigint, text, text, integer, integer, text, text, uuid[], text);
drop function if exists sluice.pick_v1(bigint[], bigint, bigint, integer);
drop function if exists sluice.turn_v1(sluice.lane[], bigint[], bigint[], boolean[], bigint[], bigint[]);
