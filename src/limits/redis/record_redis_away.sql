-- Records that Redis does not answer a process, and since when. If there was no epoch yet, the row has the epoch ''.
-- $1: the error, for people.
insert into sluice.shared (owner, epoch, at, away_at, away)
values (replace(gen_random_uuid()::text, '-', ''), '', '-infinity', sluice.now(), $1)
on conflict (one) do update set away_at = coalesce(shared.away_at, excluded.away_at), away = excluded.away
