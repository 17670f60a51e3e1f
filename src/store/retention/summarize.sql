-- Has the index on finish times know all of the partitions that may go (past), so that a look for a young finish, which
-- expire repeats while finishes wait, reads next to nothing: the server itself does that when it gets to it, and 10^7 rows
-- that it did not get to take more than 10 s to read. p_last: as an earlier portion said it in more, null: from the start. p_cap: as of limiter_us.
create or replace function engine.summarize(p_done_ms bigint, p_failed_ms bigint, p_last text, p_cap bigint, out more text)
language plpgsql set lock_timeout = '200ms' as $$
declare
  v_now timestamptz := sluice.now();
  v_from text := split_part(p_last, ':', 1);
  v_block bigint;
  v_old record;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;
  for v_old in
    select p.name, x.indexrelid::regclass as index, pg_relation_size(x.indrelid) / current_setting('block_size')::bigint as blocks
    from engine.past(p_done_ms, p_failed_ms, p_cap) p join pg_index x on x.indrelid = format('sluice.%I', p.name)::regclass
    join pg_class c on c.oid = x.indexrelid join pg_am a on a.oid = c.relam and a.amname = 'brin'
    order by right(p.name, 8), p.name
  loop
    -- What stands before the last one is done.
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
