-- Locks these classes, reads their arrivals, and serves a claim from them: by `engine.claim_lone_lane` if one lane is
-- alone, otherwise by `engine.absorb_arrivals` and `engine.decide_claim`.
-- p_plain: no job requires a label or a pool
create or replace function engine.serve_claim(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_plain boolean, p_want integer, p_begun bigint,
  p_since bigint, p_cap bigint, p_most integer, p_ahead integer) returns engine.served
language plpgsql as $$
declare
  v_most constant integer := 32;  -- how many classes one claim locks
  v_class bigint;
  v_news engine.news;
  v_all engine.news[] := '{}';
  v_new bigint[];  -- classes in which no job waited until now
  v_some boolean := cardinality(p_classes) > v_most;
  v_rest boolean := false;
  v_done engine.served;
begin
  if v_some then p_classes := array(select c from unnest(p_classes) c order by random() limit v_most); end if;
  perform engine.lock_classes(p_classes);
  foreach v_class in array p_classes loop
    v_news := engine.read_arrivals(v_class);
    v_all := v_all || v_news;
    v_rest := v_rest or v_news.rest;
  end loop;
  if p_plain and cardinality(p_classes) = 1 then
    v_done := engine.claim_lone_lane(p_claim, p_worker, v_class, v_news, p_want, p_begun, p_since, p_cap,
      p_ahead);
    if v_done.served then
      perform engine.record_class_states(v_all, p_classes, array[v_done.granted]);
      return v_done;
    end if;
  end if;
  v_new := array(
    select (n.state).class from unnest(v_all) n
    where (n.state).waiting <= (select sum(c) from unnest(n.counts) c));
  perform engine.absorb_arrivals(p_begun, v_all);
  v_done := engine.decide_claim(p_claim, p_worker, p_classes, v_new, p_want, p_cap, p_since,
    -- More lanes only if claims grant ahead, because reading a lane costs as much as granting a job.
    case when p_ahead > p_most and exists (select 1 from sluice.list l where l.class = any (p_classes) and l.lead > 0)
      then least(256, p_ahead + 1) else p_most end, p_ahead);
  -- The next claim reads the classes that were left out. It follows at once, unless these classes gave nothing and will
  -- give nothing soon.
  v_done.again := v_done.again or v_rest or (v_some and (v_done.granted > 0 or (p_plain and not v_done.soon)));
  v_done.soon := v_done.soon or (v_some and not v_done.again);
  perform engine.record_class_states(v_all, v_done.of, v_done.taken);
  return v_done;
end $$;
