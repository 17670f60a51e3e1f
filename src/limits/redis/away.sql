-- Notes that Redis does not answer somebody ($1: why), and since when; also before there was an epoch, which is ''
-- then.
insert into sluice.shared (owner, epoch, at, away_at, away)
values (replace(gen_random_uuid()::text, '-', ''), '', '-infinity', sluice.now(), $1)
on conflict (one) do update set away_at = coalesce(shared.away_at, excluded.away_at), away = excluded.away
