-- Quotas: so many units in each period of a calendar.
create function sluice.margins(spec jsonb) returns bigint[] language sql immutable strict as
  $$ select case when max(m) > 0 then array_agg(m order by o) end from (
       select coalesce((r -> 'quota' ->> 'marginUs')::bigint, 0), o
       from jsonb_array_elements(spec -> 'rules') with ordinality u (r, o)) t (m, o) $$;

-- How far a grant counts beyond the ends of its period, for each rule; 0 where it is no quota; null: no rule is. The
-- calendar itself is read from the spec when a period has ended.
alter table sluice.limit_def add column margin bigint[] generated always as (sluice.margins(spec)) stored;

-- Of limits with quotas a row per rule, zeros where it is none: where the period before begins, where the one that the row's time is in begins and
-- ends (microseconds), and the units that count in the one before, in this one, and already in the next.
alter table sluice.ledger add column quota bigint[];
alter type sluice.state add attribute quota bigint[];
