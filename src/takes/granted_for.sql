-- Returns for what time an earlier request under this id was granted in a bucket; null: it was not. Other parameters:
-- takes/decide_grant.sql.
-- p_requested: when the grant was first requested, or a little earlier, in microseconds: all rows since then are looked
-- through, not only the newest 1,000. Null: it was not requested before.
create or replace function engine.granted_for(p_grant uuid, p_bucket bigint, p_since bigint, p_requested bigint)
returns bigint language plpgsql stable as $$
declare
  v_at bigint := (
    select max(t.at) from (select l.claim, l.at from sluice.ledger l where l.bucket = p_bucket and l.at >= p_since
                           order by l.at desc, l.n desc limit 1000) t where t.claim = p_grant);
begin
  if p_requested is not null and v_at is null then v_at := (
    select max(l.at) from sluice.ledger l
    where l.bucket = p_bucket and l.at >= greatest(p_since, p_requested) and l.claim = p_grant); end if;
  return v_at;
end $$;
