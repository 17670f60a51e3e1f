-- Records that Redis answers again.
update sluice.shared set away_at = null, away = null where away_at is not null
