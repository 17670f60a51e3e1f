-- Claims jobs of one class, to see whether that fails; the caller rolls it back (`engine.probe`).
-- p_trial: as in `engine.narrow`
create or replace function engine.try_class(p_trial engine.trial) returns void language plpgsql as $$
declare
  v_now bigint;
  v_news engine.news;
  v_done record;
begin
  perform engine.enclose(array[p_trial.class]);
  v_now := engine.limiter_us(p_trial.cap);
  perform engine.barred(p_trial.labels, array[p_trial.class], v_now);
  v_news := engine.read_arrivals(p_trial.class);
  perform engine.absorb(v_now, array[v_news]);
  select * into v_done
    from engine.decide(gen_random_uuid(), p_trial.worker, array[p_trial.class], '{}', p_trial.want, p_trial.cap, -1,
      256);
  perform engine.note_classes(array[v_news], v_done.of, v_done.taken);
end $$;
