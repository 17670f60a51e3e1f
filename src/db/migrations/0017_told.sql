-- Jobs are told as text, which nobody but the worker reads.
drop function if exists sluice.claim_v1(uuid, bigint, text[], text[], integer, bigint, boolean, bigint, boolean);
drop function if exists sluice.serve_v1(uuid, bigint, bigint[], boolean, integer, bigint, bigint, bigint, integer);
drop function if exists sluice.direct_v1(uuid, bigint, bigint, sluice.fresh, integer, bigint, bigint, bigint);
drop function if exists sluice.draw_v1(uuid, bigint, bigint, sluice.lane, integer, bigint);
drop function if exists sluice.grant_v1(uuid, bigint, bigint[], integer, bigint, bigint, integer);
drop function if exists sluice.mark_v1(uuid, bigint, bigint, sluice.lane[], bigint[], integer[], integer[], bigint[], bigint[], bigint[], bigint[],
  bigint[], bigint[], boolean[], integer[], jsonb, bigint[], sluice.room[]);
drop function if exists sluice.adopt_v1(uuid);
drop function if exists sluice.handout_v1(sluice.job);
drop function if exists sluice.hand_v1(sluice.job, bigint, text, boolean, boolean);
drop function if exists sluice.readmit_v1(uuid[], uuid[], text[]);

-- Nobody calls these any more: admission is told by hand_v1, and inputs are lines of one text.
drop function if exists sluice.admitted_v1(boolean, jsonb);
drop function if exists sluice.supersede_v1(text, text, uuid, integer, bigint[], text[], text[], integer[], integer[], text[], text[],
  uuid[], integer[], text[], bigint[], bigint[], text[], text[], boolean);
drop function if exists sluice.send_v1(bigint[], text[], text[], integer[], integer[], text[], text[], uuid[], integer[], text[], bigint[],
  bigint[], text[], text[], boolean);

-- What a claim of some 250 jobs lists is 4 KB: to compress that takes longer than all else about its row.
alter table sluice.claim set (toast_tuple_target = 8160);
