-- When jobs look again at a bucket that frees at p_next (null: no bucket): not within 20 ms while takers outside of
-- jobs wait for it, or for a member of it, too, for whom something may be left that jobs must not ask about over and
-- over.
create or replace function engine.after(p_bucket bigint, p_next bigint, p_now bigint) returns bigint language plpgsql stable as $$
begin
  if p_next > p_now + 20000 or p_next is null or not exists (
    select 1 from sluice.taker where bucket = any (engine.members(p_bucket)) and alive_until > p_now) then return p_next; end if;
  return p_now + 20000;
end $$;
