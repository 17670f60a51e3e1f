-- What a worker says and asks every 2 s, in one statement: a sign of life, a look at the store (look says what goes in and
-- comes out), and a look at what is in its own hands. alive: false when it was given up; it must register anew. turn: nobody
-- has looked at the fleet for a while (watch notes when), so what one worker does for all is this one's to do; p_led: it
-- was the last time, and it is mostly the same one that goes on, whose connection has everything planned. rest: somebody else
-- looks, in a fleet where enough of them would notice soon that nobody does. orphans:
-- claims that the store holds for it, made more than 5 s ago: one that it does not know of is the fruit of a request that
-- reached the store late, and it adopts that claim's jobs (adopt).
create or replace function engine.round(p_worker bigint, p_led boolean, p_least bigint, p_n bigint, p_lsn pg_lsn,
  out alive boolean, out turn boolean, out rest boolean, out orphans uuid[],
  out now_us bigint, out ahead_us bigint, out watched boolean, out n bigint, out lsn pg_lsn, out restored boolean, out raised_us bigint,
  out renewal boolean)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_now bigint := sluice.now_us();
begin
  select l.* into now_us, ahead_us, watched, n, lsn, restored, raised_us, renewal from engine.look(p_least, p_n, p_lsn) l;
  update sluice.worker w set beat = w.beat + 1 where w.id = p_worker;
  alive := found;
  -- A little more than a beat, or a little less.
  turn := not exists (select 1 from sluice.doubt d where d.worker = p_worker
                      and d.at between v_now - case when p_led then 1500000 else 2200000 end and v_now);
  rest := not turn and (select count(*) from (select 1 from sluice.worker limit 5) w) = 5;
  orphans := array(select c.id from sluice.claim c where c.worker = p_worker and c.at < now_us - 5000000);
end $$;
