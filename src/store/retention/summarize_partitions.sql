-- Completes the BRIN indexes on finish times of the partitions that may be dropped (`engine.find_old_partitions`), in
-- portions of 200 ms. `engine.drop_expired_partition` then finds a job that finished too late in next to no time, which
-- matters because finishes wait for the lock that it holds. The server summarizes new ranges by itself, but only
-- eventually; reading 10^7 rows that it has not summarized takes more than 10 s.
-- p_done_ms, p_failed_ms: how long finished and failed jobs are kept.
-- p_last: the `more` of the previous portion; null: from the start.
-- more: where the next portion begins; null: all is done.
create or replace function engine.summarize_partitions(
  p_done_ms bigint, p_failed_ms bigint, p_last text, p_cap bigint, out more text)
language plpgsql set lock_timeout = '200ms' as $$
declare
  v_now timestamptz := sluice.now();
  v_from text := split_part(p_last, ':', 1);
  v_block bigint;
  v_old record;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;  -- lock: old rows
  for v_old in
    select p.name, x.indexrelid::regclass as index,
           pg_relation_size(x.indrelid) / current_setting('block_size')::bigint as blocks
    from engine.find_old_partitions(p_done_ms, p_failed_ms, p_cap) p
    join pg_index x on x.indrelid = format('sluice.%I', p.name)::regclass
    join pg_class c on c.oid = x.indexrelid join pg_am a on a.oid = c.relam and a.amname = 'brin'
    order by right(p.name, 8), p.name
  loop
    -- Earlier portions have done the partitions before this one.
    continue when (right(v_old.name, 8), v_old.name) < (right(v_from, 8), v_from);
    v_block := case when v_old.name = v_from then split_part(p_last, ':', 2)::bigint else 0 end;
    while v_block < v_old.blocks loop
      perform brin_summarize_range(v_old.index, v_block);
      v_block := v_block + 128;
      if sluice.now() > v_now + interval '200 ms' then
        more := v_old.name || ':' || v_block;
        return;
      end if;
    end loop;
  end loop;
exception when lock_not_available then return;
end $$;
