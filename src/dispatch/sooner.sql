-- Has those who wait for these buckets look as soon as there is room, for some was given back. Call under lock_v1.
create or replace function sluice.sooner_v1(p_buckets bigint[], p_now bigint) returns void language plpgsql as $$
begin
  update sluice.list w set due = r.next
  from sluice.class c, sluice.room_v1(p_buckets, p_now) r
  where w.class = c.id and w.id = r.bucket and r.next < w.due;
end $$;
