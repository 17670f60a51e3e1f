-- Builds lanes that have no row yet, each from its first waiting job; `engine.seat_lanes` inserts them. A lane's
-- buckets are in the order of the job's takes, and so of its costs. A bucket that depends on a worker's label
-- (`ip@host`) stands under that name; each claim finds the worker's own bucket for it (`engine.resolve_buckets`). A
-- lane whose jobs have gone meanwhile is left out.
-- p_class: the class of the lanes
-- p_new: their positions in p_news
-- takes: the names of their buckets, for `engine.make_buckets`; those that depend on labels are left out
create or replace function engine.make_lanes(
  p_class bigint, p_news engine.news, p_new integer[], out lanes sluice.lane[], out takes text[]) language plpgsql as $$
begin
  -- Fair keys compete within the limit that they share: without a fair key, the job's first bucket with a key counts as
  -- its fair key; without such a bucket, its class. Retries wait in odd lanes. Their fair key is odd, too, and that of
  -- first attempts is even: so the two take turns, and retries get no more than half of them.
  -- Columns are set by name, because another release may have added columns to the table.
  select array_agg(jsonb_populate_record(null::sluice.lane, jsonb_build_object(
           'id', j.lane, 'v', -1, 'class', p_class, 'rank', 0, 'bound', j.seq, 'denied', 0, 'priority', j.priority,
           'weight', coalesce(j.weight, 1), 'costed', j.costs is not null,
           'fair', (j.lane & 1) | (-2 & sluice.hash64(coalesce(
             j.fair, (select t from unnest(j.takes) t where t like '%:%' limit 1), j.queue || E'\x1f' || j.task))),
           'buckets', array(select sluice.hash64(t) from unnest(j.takes) with ordinality u (t, o) order by o)))),
         array(select distinct t
               from unnest(array_agg(array_to_string(j.takes, E'\x1f'))) s, unnest(string_to_array(s, E'\x1f')) t
               where t !~ '^[^:*]+@')
  into make_lanes.lanes, make_lanes.takes
  from unnest(p_new) o cross join lateral (
    select * from sluice.job
    where lane = p_news.lanes[o] and seq >= p_news.bounds[o] and due_at is null order by seq limit 1) j;
  lanes := coalesce(lanes, '{}');
end $$;
