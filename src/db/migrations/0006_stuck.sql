-- Handlers of a worker that go on though their attempts have ended: worker/stuck.ts counts them, `status` shows them.
alter table sluice.worker add column stuck integer not null default 0;
