-- Returns how many units of a bucket somebody else has used, as far as a vendor's count shows it and the bucket has not
-- been charged for it: the units that the vendor has counted since p_from, less all that the bucket granted or was
-- charged since then. It assumes that every grant has arrived, so a request under way never counts as somebody else's.
-- If the vendor's window ends at a known time, it returns at most the units that the bucket could grant until then
-- beyond the units that the vendor has left, because no other units could do harm. 0 if more than 20,000 rows would
-- have to be read, or if the bucket grants nothing anyway.
-- p_most: units of the vendor's window, or of the limit's, whichever is smaller.
-- p_left: units that the vendor has left.
-- p_from: nothing that was granted earlier is in the vendor's count; p_until: when that begins anew, null: not known;
create or replace function engine.find_others_use(
  p_bucket bigint, p_most bigint, p_left bigint, p_from bigint, p_until bigint, p_now bigint)
returns bigint language plpgsql stable as $$
declare
  v_rows constant bigint := 20000;
  v_room engine.room;
  v_more bigint;
  v_can bigint;
begin
  v_room := (engine.bucket_room(array[p_bucket], p_now))[1];
  if v_room.version is null or v_room.hold >= p_until or v_room.n - v_rows > (
      select l.n from sluice.ledger l where l.bucket = p_bucket and l.at > p_from order by l.at, l.n limit 1) then
    return 0;
  end if;
  v_more := p_most - p_left - coalesce((select sum(g.units) from engine.kept_grants(p_bucket, p_from) g), 0);
  if v_more < 1 or p_until is null then return greatest(0, v_more); end if;
  -- A rate with a pace can grant what the one or the other can.
  select min(g.can) into v_can from (
    select max(case when u.kind not in ('rate', 'pace') then u.capacity - u.later
      else floor((case u.kind when 'pace' then u.weight + u.drain * u.part_us else u.capacity::numeric * u.weight end
                  - u.debt + u.drain::numeric * greatest(0, p_until - v_room.now_at)) / u.weight) end) as can
    from sluice.bucket b
    join sluice.limit_def d on d.name = b.name and d.version = v_room.version
    cross join unnest(engine.bucket_room(array[p_bucket], p_until)) t
    cross join unnest(d.kind, d.capacity, d.weight, d.drain, d.part_us, v_room.debt, t.debt) with ordinality
      u (kind, capacity, weight, drain, part_us, debt, later, i)
    where b.id = p_bucket and u.kind <> 'concurrency' group by u.i - (u.kind = 'pace')::integer) g;
  return greatest(0, least(v_more, v_can - p_left));
end $$;
