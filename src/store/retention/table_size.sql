-- Returns the rows of a table, and its bytes with indexes. Beyond 10,000 rows (`countedTo` in operations/jobs.ts) it
-- returns what the server's statistics have, because counting takes as long as reading.
create or replace function engine.table_size(p_table regclass, out rows bigint, out bytes bigint)
language plpgsql stable as $$
begin
  execute format('select count(*) from (select 1 from %s limit 10001) t', p_table) into rows;
  if rows > 10000 then
    rows := greatest(rows, (select c.reltuples::bigint from pg_class c where c.oid = p_table),
                     (select s.n_live_tup from pg_stat_all_tables s where s.relid = p_table));
  end if;
  bytes := pg_total_relation_size(p_table);
end $$;
