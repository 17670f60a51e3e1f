-- Triggers that enforce what must hold for every transaction with a promise, whatever the settings of its session: no
-- function, statement or release can leave it out. A condition costs 1 us, a trigger that fires 5 us.

-- Makes a commit wait for the disk: otherwise acknowledged grants, jobs and operators' changes could be lost. `local`
-- and the levels for standbys stay as they are.
create function sluice.commit_durably() returns trigger language plpgsql as $$
begin
  perform set_config('synchronous_commit', 'on', true);
  return null;
end $$;

-- Rejects other isolation levels: with an older snapshot a limit would be decided without the grants of other
-- transactions. A pooler's connection may have another level than when this process checked it, because another client
-- has changed it.
create function sluice.refuse_isolation() returns trigger language plpgsql as $$
begin
  raise exception 'limits are decided at read committed, and this transaction is at %',
    current_setting('transaction_isolation')
    using errcode = 'SLW03',
      hint = 'A client of the pooler has left default_transaction_isolation changed. Set it for the role: '
        'alter role ... set default_transaction_isolation = ''read committed'', '
        'and have the pooler reset its connections.';
end $$;

do $$
declare
  v_table text;
begin
  foreach v_table in array array['job', 'done', 'failed', 'idempotency', 'claim', 'ledger', 'lease', 'holder',
    'limit_def', 'limit_source', 'limit_pause', 'gate', 'schedule', 'firing', 'setting', 'epoch', 'step', 'shared']
  loop
    execute format('create trigger commit_durably before insert or update or delete on sluice.%I for each statement
      when (current_setting(''synchronous_commit'') = ''off'') execute function sluice.commit_durably()', v_table);
  end loop;
  foreach v_table in array array['claim', 'ledger', 'lease'] loop
    execute format('create trigger refuse_isolation before insert on sluice.%I for each statement
      when (current_setting(''transaction_isolation'') <> ''read committed'')
      execute function sluice.refuse_isolation()', v_table);
  end loop;
end $$;
