-- The lanes at these positions of p_news, which nobody knows yet, each as its first job says; seat_lanes.sql writes them.
-- Buckets stand as in takes, as costs do: also what goes by a label of the worker, of which each claim finds which it is
-- (resolve.sql). A lane whose jobs have gone meanwhile is left out. takes: the names of their buckets (make_buckets.sql).
create or replace function engine.make_lanes(
  p_class bigint, p_news engine.news, p_new integer[], out lanes sluice.lane[], out takes text[]) language plpgsql as $$
begin
  -- Tenants are compared within the limit that they share: by default the first keyed one, else the class.
  -- By name: another release may have added columns to the table.
  select array_agg(jsonb_populate_record(null::sluice.lane, jsonb_build_object(
           'id', j.lane, 'v', -1, 'class', p_class, 'rank', 0, 'bound', j.seq, 'denied', 0, 'priority', j.priority,
           'weight', coalesce(j.weight, 1), 'costed', j.costs is not null,
           'fair', sluice.hash64(coalesce(j.fair, (select t from unnest(j.takes) t where t like '%:%' limit 1), j.queue || E'\x1f' || j.task)),
           'buckets', array(select sluice.hash64(t) from unnest(j.takes) with ordinality u (t, o) order by o)))),
         array(select distinct t from unnest(array_agg(array_to_string(j.takes, E'\x1f'))) s, unnest(string_to_array(s, E'\x1f')) t
               where t !~ '^[^:*]+@')
  into make_lanes.lanes, make_lanes.takes
  from unnest(p_new) o cross join lateral (
    select * from sluice.job where lane = p_news.lanes[o] and seq >= p_news.bounds[o] and due_at is null order by seq limit 1) j;
  lanes := coalesce(lanes, '{}');
end $$;
