-- Not before this time do jobs look again at a bucket: 20 ms from now while takers outside of jobs wait for it, for whom
-- something may be left that jobs must not ask about over and over.
create or replace function sluice.after_v1(p_bucket bigint, p_now bigint) returns bigint language plpgsql stable as $$
begin
  return case when exists (select 1 from sluice.taker where bucket = p_bucket and alive_until > p_now) then p_now + 20000 else 0 end;
end $$;
