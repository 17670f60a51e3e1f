-- The time $1 seconds ago, as ISO text.
select to_jsonb(sluice.now() - make_interval(secs => $1)) as at
