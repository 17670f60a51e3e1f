-- Serves a claim out of these classes, under their locks: by direct where one lane is alone, else by grant, after what has
-- arrived is taken in. p_plain: nobody asks for labels or pools; p_most: how many lanes to look at; the others: claim.
create or replace function engine.serve(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_plain boolean, p_want integer, p_begun bigint, p_since bigint, p_cap bigint,
  p_most integer, out now_us bigint, out granted integer, out again boolean, out jobs text)
language plpgsql as $$
declare
  v_class bigint;
  v_fresh engine.fresh;
  v_served boolean := false;
  v_more boolean := false;
begin
  perform engine.enclose(p_classes);
  if p_plain and cardinality(p_classes) = 1 then
    v_fresh := engine.fresh(p_classes[1]);
    select d.served, d.now_us, d.granted, d.again, d.jobs into v_served, now_us, granted, again, jobs
    from engine.direct(p_claim, p_worker, p_classes[1], v_fresh, p_want, p_begun, p_since, p_cap) d;
    if v_served then return; end if;
  end if;
  foreach v_class in array p_classes loop
    v_more := engine.absorb(v_class, v_fresh) or v_more;
  end loop;
  if v_served is null then
    -- Its buckets are locked, so no others may be: one that fell due meanwhile would be locked out of order. It is seated now.
    select d.now_us, d.granted, d.again or d.served is not true or v_more, d.jobs into now_us, granted, again, jobs
    from engine.direct(p_claim, p_worker, p_classes[1], null, p_want, p_begun, p_since, p_cap) d;
    return;
  end if;
  select g.now_us, g.granted, g.again or v_more, g.jobs into now_us, granted, again, jobs
  from engine.grant(p_claim, p_worker, p_classes, p_want, p_cap, p_since, p_most) g;
end $$;
