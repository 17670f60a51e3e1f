-- Definitions of limits have sources, of which the highest is in force: what an operator has pinned, over what one has
-- stored, over what code says.

-- What each source says now. spec and columns as in limit_def; of an operator's, spec has only what the numbers decide:
-- keys and everything else come from the code. `columns` has the arrays of limit_def by their names.
create table sluice.limit_source (
  name text not null,
  source text not null check (source in ('code', 'stored', 'pinned')),
  spec jsonb not null,
  columns jsonb not null,
  by text not null,
  reason text,
  at timestamptz not null,
  -- Of code: when the process began that said so; what one says that began earlier is out of date.
  born_at timestamptz,
  primary key (name, source)
);

-- The history: which source put each version in force, who did it, and why.
alter table sluice.limit_def add column source text not null default 'code', add column by text, add column reason text;
