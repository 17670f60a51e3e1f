-- Deadlines: which jobs of a lane must begin by when. `claim` is left out, so that claims stay HOT.
create index job_deadline on sluice.job (lane, expires_at) where expires_at is not null and due_at is null;
