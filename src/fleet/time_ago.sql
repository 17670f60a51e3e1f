-- Returns the time $1 seconds ago by the store's clock, as ISO text.
select to_jsonb(sluice.now() - make_interval(secs => $1)) as at
