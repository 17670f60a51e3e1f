-- Events between services (docs/events.md), who gets them, and who emits them.

-- Every event that was emitted, as long as events are kept: for late subscribers, for `sluice events show`, and so that
-- an event that is emitted again under its id is recognised. Insert-only, and deleted in portions by id.
create table sluice.emitted (
  id uuid primary key,
  type text not null,
  at timestamptz not null,
  -- The envelope: CloudEvents 1.0.
  event jsonb not null,
  -- How many subscriptions it was delivered to when it was emitted; 0: nobody was interested.
  routed integer not null,
  -- The emitter's snapshot may be too old to show a subscription (repeatable read): to be delivered once more.
  aged boolean
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
create index emitted_type on sluice.emitted (type, at, id);
create index emitted_aged on sluice.emitted (id) where aged;

-- The handlers of services: each gets every event whose type matches, as a job of its service's group.
create table sluice.subscription (
  service text not null,
  handler text not null,
  -- Its first name, of which the ids of its deliveries are made: a handler that is renamed gets nothing again.
  origin text not null,
  -- As it was written; and the type if it names one, else a regular expression of types.
  pattern text not null,
  type text,
  regex text,
  task text not null,
  -- The tasks that it had before: deliveries of them may wait.
  old_tasks text[] not null default '{}',
  queue text not null,
  -- The buckets that a delivery needs, and for each the path of its key in the envelope; null: it has no key. buckets
  -- is null if only the service's code can compute them.
  buckets text[],
  paths text[],
  -- The lane of deliveries whose buckets have no keys, and the class of deliveries.
  lane bigint,
  class bigint,
  since timestamptz not null,
  -- Catching up: 0 not begun, 1 first look, 2 waits for the transactions of then, 3 last look, 4 over.
  phase smallint not null default 0,
  barrier xid8,
  last_at timestamptz,
  last_id uuid,
  created_at timestamptz not null,
  -- When a process that has the handler last started, to the minute.
  seen_at timestamptz not null,
  primary key (service, handler)
) with (fillfactor = 50);
-- Patterns have no type: those that one type selects are together with them in one index.
create index subscription_type on sluice.subscription (coalesce(type, ''));
create index subscription_phase on sluice.subscription (service) where phase < 4;

-- Which service emits events of a type, and their payloads' schema.
create table sluice.publisher (
  service text not null,
  type text not null,
  version integer,
  description text,
  schema jsonb,
  seen_at timestamptz not null,
  primary key (service, type)
) with (fillfactor = 50);

create trigger commit_durably before insert or update or delete on sluice.emitted for each statement
  when (current_setting('synchronous_commit') = 'off') execute function sluice.commit_durably();
create trigger commit_durably before insert or update or delete on sluice.subscription for each statement
  when (current_setting('synchronous_commit') = 'off') execute function sluice.commit_durably();
