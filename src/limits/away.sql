-- Notes since when Redis does not answer somebody ($1: why), or that it does ($1 null).
update sluice.shared set away_at = case when $1::text is not null then coalesce(away_at, sluice.now()) end, away = $1
where away is distinct from $1 or (away_at is null) <> ($1::text is null)
