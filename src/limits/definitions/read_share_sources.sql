-- Returns the definitions of a limit, and of the buckets beside it for its share, in each source that has not withdrawn
-- them, the newest of each key first. $1: the limit.
select name, key, source, digest, spec from sluice.limit_source
where (name = $1 or starts_with(name, $1 || '/')) and gone_at is null
order by key, at desc
