-- Claims jobs of one class, to see whether that fails; the caller rolls it back (`engine.rehearse_claim`).
-- p_rehearsal: as in `engine.find_faults`
create or replace function engine.try_class(p_rehearsal engine.rehearsal) returns void language plpgsql as $$
declare
  v_now bigint;
  v_news engine.news;
  v_done engine.claimed;
begin
  perform engine.lock_classes(array[p_rehearsal.class]);
  v_now := engine.limiter_now_us(p_rehearsal.cap);
  perform engine.find_classes_without_room(p_rehearsal.labels, array[p_rehearsal.class], v_now);
  v_news := engine.read_arrivals(p_rehearsal.class);
  perform engine.absorb_arrivals(v_now, array[v_news]);
  v_done := engine.try_claim(p_rehearsal, p_rehearsal.class, v_now);
  perform engine.record_class_states(array[v_news], v_done.of, v_done.taken);
end $$;
