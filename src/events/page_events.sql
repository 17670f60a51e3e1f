-- Returns the ids of the next events that match a subscription, in the order of their emission.
-- p_sub: the subscription; last_at and last_id: where the previous page ended.
-- p_most: how many.
create or replace function engine.page_events(p_sub sluice.subscription, p_most integer) returns setof uuid
language plpgsql stable set enable_seqscan = off set jit = off as $$
begin
  return query
    select e.id
    from engine.list_emitted() t (type)
    cross join lateral (
      select v.id, v.at from sluice.emitted v
      where v.type = t.type
        and (v.at, v.id) > (p_sub.last_at, coalesce(p_sub.last_id, '00000000-0000-0000-0000-000000000000'))
      order by v.at, v.id limit p_most) e
    where t.type = p_sub.type or t.type ~ p_sub.regex
    order by e.at, e.id limit p_most;
end $$;
