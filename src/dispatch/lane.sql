-- The newest versions of these lanes, in their order; what is not known is left out.
create or replace function engine.lane(p_ids bigint[]) returns sluice.lane[] language plpgsql stable as $$
begin
  return array(select l from unnest(p_ids) with ordinality c (id, o)
               cross join lateral (select * from sluice.lane where id = c.id order by v desc limit 1) l order by c.o);
end $$;
