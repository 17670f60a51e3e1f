-- Locks these classes, reads their arrivals, and serves a claim from them: by `engine.claim_lone_lane` if one lane is
-- alone, otherwise by `engine.absorb_arrivals` and `engine.decide_claim`. Parameters and results are those of
-- `engine.claim_jobs`, and:
-- p_plain: no job requires a label or a pool
-- p_begun: when the claim began, in the limiter's time, in microseconds
-- p_most: how many lanes to look at
-- held: a job was left because another transaction has it locked
create or replace function engine.serve_claim(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_plain boolean, p_want integer, p_begun bigint,
  p_since bigint, p_cap bigint,
  p_most integer, out now_us bigint, out granted integer, out again boolean, out jobs text, out held boolean,
  out probing boolean)
language plpgsql as $$
declare
  v_most constant integer := 32;  -- how many classes one claim locks
  v_class bigint;
  v_news engine.news;
  v_all engine.news[] := '{}';
  v_new bigint[] := '{}';
  v_some boolean := cardinality(p_classes) > v_most;
  v_rest boolean := false;
  v_done record;
begin
  if v_some then p_classes := array(select c from unnest(p_classes) c order by random() limit v_most); end if;
  perform engine.lock_classes(p_classes);
  foreach v_class in array p_classes loop
    v_news := engine.read_arrivals(v_class);
    if v_news.future then
      perform engine.rebuild_arrivals(v_class);
      v_rest := true;
    else
      v_all := v_all || v_news;
    end if;
    v_rest := v_rest or v_news.rest;
  end loop;
  if p_plain and cardinality(p_classes) = 1 and cardinality(v_all) = 1 then
    select * into v_done from engine.claim_lone_lane(p_claim, p_worker, v_class, v_news, p_want, p_begun, p_since,
      p_cap) l;
    now_us := v_done.now_us; granted := v_done.granted; again := v_done.again; jobs := v_done.jobs; held := v_done.held;
    probing := v_done.probing;
    if v_done.served then
      perform engine.record_class_states(v_all, p_classes, array[granted]);
      return;
    end if;
  end if;
  foreach v_news in array v_all loop
    if (v_news.state).waiting <= (select sum(c) from unnest(v_news.counts) c) then
      v_new := v_new || (v_news.state).class;
    end if;
  end loop;
  perform engine.absorb_arrivals(p_begun, v_all);
  select * into v_done from engine.decide_claim(p_claim, p_worker, p_classes, v_new, p_want, p_cap, p_since, p_most) g;
  now_us := v_done.now_us; granted := v_done.granted; jobs := v_done.jobs;
  probing := v_done.probing;
  -- Classes that were left out are for the next claim: at once, unless these gave nothing and will not soon.
  again := v_done.again or v_rest or (v_some and (granted > 0 or (p_plain and not v_done.held)));
  held := v_done.held or (v_some and not again);
  perform engine.record_class_states(v_all, v_done.of, v_done.taken);
end $$;
