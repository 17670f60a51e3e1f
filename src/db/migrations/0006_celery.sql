-- Calls that Celery producers have sent, and that are jobs (docs/celery.md).

-- One row for each call, as long as it may be delivered again.
create table sluice.celery_call (
  -- Celery's id.
  id text primary key,
  n bigint generated always as identity,
  job uuid not null,
  -- What its end leads to: where its result goes, and which tasks follow.
  call jsonb not null,
  created_at timestamptz not null,
  -- When its result was sent; null: it has none yet.
  replied_at timestamptz
) with (fillfactor = 80);
create index celery_call_open on sluice.celery_call (n) where replied_at is null;
create index celery_call_over on sluice.celery_call (replied_at) where replied_at is not null;

create trigger commit_durably before insert or update or delete on sluice.celery_call for each statement
  when (current_setting('synchronous_commit') = 'off') execute function sluice.commit_durably();
