-- Claims jobs of one class, to see whether that fails; the caller rolls it back (`engine.probe_claim`).
-- p_trial: as in `engine.find_faults`
create or replace function engine.try_class(p_trial engine.trial) returns void language plpgsql as $$
declare
  v_now bigint;
  v_news engine.news;
  v_done engine.served;
begin
  perform engine.lock_classes(array[p_trial.class]);
  v_now := engine.limiter_now_us(p_trial.cap);
  perform engine.find_classes_without_room(p_trial.labels, array[p_trial.class], v_now);
  v_news := engine.read_arrivals(p_trial.class);
  perform engine.absorb_arrivals(v_now, array[v_news]);
  v_done := engine.try_claim(p_trial, p_trial.class, v_now);
  perform engine.record_class_states(array[v_news], v_done.of, v_done.taken);
end $$;
