-- Calls that Celery producers have sent, and that are jobs (docs/celery.md).

-- One row for each call, as long as it may be delivered again.
create table sluice.celery_call (
  -- Celery's id.
  id text primary key,
  n bigint generated always as identity,
  -- Null: the call was revoked before its message was read.
  job uuid,
  -- The effects of its end: where its result goes, and which tasks follow.
  call jsonb not null,
  created_at timestamptz not null,
  -- When its result was sent; null: it has none yet.
  replied_at timestamptz,
  -- A program of Celery wants it not to begin, or with `terminated` to be stopped as well.
  revoked_at timestamptz,
  terminated boolean not null default false,
  -- The last state that was reported: 2a - 1 means that attempt a has begun, 2a that another one follows it; 0: none.
  reported integer not null default 0
) with (fillfactor = 80);
create index celery_call_open on sluice.celery_call (n) where replied_at is null;
create index celery_call_job on sluice.celery_call (job) where replied_at is null;
create index celery_call_over on sluice.celery_call (replied_at) where replied_at is not null;
create index celery_call_stopped on sluice.celery_call (n) where replied_at is null and revoked_at is not null;
create index celery_call_revoked on sluice.celery_call (revoked_at) where revoked_at is not null;

create trigger commit_durably before insert or update or delete on sluice.celery_call for each statement
  when (current_setting('synchronous_commit') = 'off') execute function sluice.commit_durably();
